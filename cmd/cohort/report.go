package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/flight"
)

type reportSettings struct {
	all, json, stats bool
	last             int
	trace            string
}

func newReport() *cobra.Command {
	s := reportSettings{last: 10}
	c := &cobra.Command{
		Use:   "report [flags] FOLDER",
		Short: "Show what the ranks of a job did last, and which wait for which",
		Long: `
Show what the ranks of a job did last, and which ranks wait for which.

FOLDER holds the flight recorder's files of a job: the FOLDER of 'cohort run
--flight', or the job's COHORT_FLIGHT_DIR. It may also be a single file. The
first line of output describes what happened.

With --stats it shows instead where the time of the job went, if the ranks
counted their operations: with 'cohort run --stats', or with COHORT_STATS.

The exit status is 1 if files cannot be read.`,
		Example: `
  cohort report flight
  cohort report --all --last 20 flight
  cohort report --json flight
  cohort report --stats flight
  cohort report --trace timeline.json flight`,
		Args: cli.OneArg("FOLDER with the files of a job"),
		RunE: func(_ *cobra.Command, args []string) error { return s.run(args[0]) },
	}
	f := c.Flags()
	f.BoolVarP(&s.all, "all", "a", false, "also print the last operations of each rank")
	cli.Number(f, &s.last, "last", "", 1, flight.Slots, "print the last `N` operations of each rank with --all and --json")
	f.StringVar(&s.trace, "trace", "", "write the regions and operations to `FILE`, as a timeline that ui.perfetto.dev opens")
	f.BoolVar(&s.stats, "stats", false, "print where the time of the job went")
	f.BoolVar(&s.json, "json", false, "print one JSON object: the line, the ranks, and the operations; with --stats, the table")
	return c
}

func (s *reportSettings) run(path string) error {
	dumps, others, err := flight.Read(path)
	if err != nil {
		return err
	}
	if s.trace != "" {
		var b bytes.Buffer
		if err := flight.WriteTimeline(&b, dumps); err != nil {
			return err
		}
		if err := flight.WriteFile(s.trace, b.Bytes()); err != nil {
			return err
		}
	}
	if s.stats {
		sum, err := flight.Summarize(dumps)
		switch {
		case err != nil:
			return err
		case s.json:
			return printJSON(sum)
		}
		return sum.Write(os.Stdout)
	}
	finding, lines := flight.Analyze(dumps), flight.Lines(dumps, s.last)
	if s.json {
		return printJSON(reportOf(finding, dumps, lines))
	}
	if _, err := fmt.Println(finding.Line); err != nil {
		return err
	}
	if others > 0 {
		fmt.Fprintf(os.Stderr, "cohort report: ignoring %d files of earlier jobs in %s\n", others, path)
	}
	if !s.all {
		return nil
	}
	for _, d := range dumps {
		if _, err := fmt.Println(about(d)); err != nil {
			return err
		}
	}
	return flight.WriteTable(os.Stdout, lines)
}

func printJSON(v any) error {
	to := json.NewEncoder(os.Stdout)
	to.SetIndent("", "  ")
	return to.Encode(v)
}

// about describes a rank's file without its operations.
func about(d *flight.Dump) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d: process %d on %s, %s", d.Rank, d.Size, d.Pid, d.Host, d.Backend)
	switch {
	case d.Cause != flight.NotDumped:
		fmt.Fprintf(&b, "; written because of: %v", d.Cause)
		if d.Reason != "" {
			fmt.Fprintf(&b, " (%s)", strings.Join(append([]string{d.Reason}, d.Later...), "; then "))
		}
	case !d.Left.IsZero():
		b.WriteString("; left the job normally")
	default:
		b.WriteString("; wrote no dump: it was killed, or still runs")
	}
	return b.String()
}

// reportRank is a rank in what --json prints.
type reportRank struct {
	Rank    int      `json:"rank"`
	Pid     int      `json:"pid"`
	Host    string   `json:"host"`
	Backend string   `json:"backend"`
	Cause   string   `json:"cause,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Later   []string `json:"later,omitempty"` // the first errors of other causes
	Left    bool     `json:"left"`
}

// jobReport is what --json prints.
type jobReport struct {
	Line    string        `json:"line"`
	Trouble bool          `json:"trouble"`
	Size    int           `json:"size"`
	Ranks   []reportRank  `json:"ranks"`
	Ops     []flight.Line `json:"operations"`
}

func reportOf(f flight.Finding, dumps []*flight.Dump, lines []flight.Line) jobReport {
	out := jobReport{Line: f.Line, Trouble: f.Trouble, Size: dumps[0].Size, Ops: lines}
	for _, d := range dumps {
		out.Ranks = append(out.Ranks, reportRank{d.Rank, d.Pid, d.Host, d.Backend, d.Cause.String(), d.Reason, d.Later, !d.Left.IsZero()})
	}
	return out
}
