package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/cohort-hpc/cohort/internal/flight"
)

var reportCommand = command{
	name:    "report",
	args:    "FOLDER",
	summary: "Say what the ranks of a job did last, and who waits for whom.",
	setup:   setupReport,
	about: `
FOLDER is where the ranks of a job have left the files of the flight recorder:
COHORT_FLIGHT_DIR of the job, or that of 'cohort run --flight'. It may be a
single file as well. The first line says what happened; it is all there is
unless more is asked for.

The status is 0 whatever the line says, and 1 if the files cannot be read.

Examples:
  cohort report flight
  cohort report --all --last 20 flight
  cohort report --json flight
`,
}

// reportSettings are the options of cohort report.
type reportSettings struct {
	all, json bool
	last      int
}

func setupReport(o *options) func([]string) (int, error) {
	s := reportSettings{last: 10}
	o.flag(&s.all, 'a', "all", "print the last operations of each rank as well")
	o.number(&s.last, 0, "last", "N", "how many with --all and --json (default 10)", 1, flight.Slots)
	o.flag(&s.json, 0, "json", "print a JSON object instead: the line, the ranks, and the operations")
	return s.run
}

func (s *reportSettings) run(args []string) (int, error) {
	if len(args) != 1 {
		return statusUsage, usagef("want one FOLDER with the files of a job")
	}
	dumps, others, err := flight.Read(args[0])
	if err != nil {
		return 1, err
	}
	finding := flight.Analyse(dumps)
	lines := flight.Lines(dumps, s.last)
	if s.json {
		return s.printJSON(finding, dumps, lines)
	}
	if _, err := fmt.Println(finding.Line); err != nil {
		return 1, err
	}
	if others > 0 {
		fmt.Fprintf(os.Stderr, "cohort report: %d files of earlier jobs in %s are left out\n", others, args[0])
	}
	if !s.all {
		return 0, nil
	}
	for _, d := range dumps {
		if _, err := fmt.Println(about(d)); err != nil {
			return 1, err
		}
	}
	if err := flight.WriteTable(os.Stdout, lines); err != nil {
		return 1, err
	}
	return 0, nil
}

// about says what a rank's file says besides its operations.
func about(d *flight.Dump) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d: process %d on %s, %s", d.Rank, d.Size, d.Pid, d.Host, d.Backend)
	switch {
	case d.Cause != flight.NotDumped:
		fmt.Fprintf(&b, "; written because of: %v", d.Cause)
		if d.Reason != "" {
			fmt.Fprintf(&b, " (%s)", d.Reason)
		}
	case !d.Left.IsZero():
		b.WriteString("; left the job in good order")
	default:
		b.WriteString("; it has written nothing itself: it was killed, or runs")
	}
	return b.String()
}

// reportRank is a rank in what --json prints.
type reportRank struct {
	Rank    int    `json:"rank"`
	Pid     int    `json:"pid"`
	Host    string `json:"host"`
	Backend string `json:"backend"`
	Cause   string `json:"cause,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Left    bool   `json:"left"`
}

func (s *reportSettings) printJSON(f flight.Finding, dumps []*flight.Dump, lines []flight.Line) (int, error) {
	out := struct {
		Line    string        `json:"line"`
		Trouble bool          `json:"trouble"`
		Size    int           `json:"size"`
		Ranks   []reportRank  `json:"ranks"`
		Ops     []flight.Line `json:"operations"`
	}{Line: f.Line, Trouble: f.Trouble, Size: dumps[0].Size, Ops: lines}
	for _, d := range dumps {
		out.Ranks = append(out.Ranks, reportRank{d.Rank, d.Pid, d.Host, d.Backend, d.Cause.String(), d.Reason, !d.Left.IsZero()})
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return 1, err
	}
	_, err = fmt.Println(string(b))
	if err != nil {
		return 1, err
	}
	return 0, nil
}
