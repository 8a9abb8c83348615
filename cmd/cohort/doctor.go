package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/pod"
	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// A state is what a finding means for the user.
type state string

const (
	ok   state = "ok"
	warn state = "warn"
	fail state = "fail"
	none state = "none"
)

// finding is one thing found out.
type finding struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	State  state  `json:"state"`
	Value  string `json:"value"`
	Advice string `json:"advice,omitempty"` // what to do about it

	Details []string `json:"details,omitempty"` // lines that say more

	Library *report `json:"library,omitempty"` // of an MPI library
}

type diagnosis struct {
	all    []finding
	keeper *spawn.Keeper // of what the checks start and make; may be nil
}

// add notes a finding; details may be added to it.
func (d *diagnosis) add(group, name string, s state, value, advice string) {
	d.all = append(d.all, finding{Group: group, Name: name, State: s, Value: value, Advice: advice})
}

// detail adds a line to the latest finding.
func (d *diagnosis) detail(format string, args ...any) {
	f := &d.all[len(d.all)-1]
	f.Details = append(f.Details, fmt.Sprintf(format, args...))
}

func newDoctor() *cobra.Command {
	var p pinning
	asJSON := false
	c := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check what this machine offers, and what is wrong with it",
		Long: `
Check what this machine offers to ranks, and what is wrong with it.

Each line has a state:

  ok      it works
  warn    it works, but not as well as it could
  fail    something that cohort needs does not work; the exit status is 1
  none    something optional is missing

The lines under "pinning" show where 'cohort run' would place ranks and threads.
The flags below change the number and the placement.

The checks run a job of two ranks on each backend that this program and machine
have, and load each MPI library.`,
		Example: `
  cohort doctor
  cohort doctor -n 2 --threads 8 --pin cores`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error { return cli.Exit(runDoctor(p, asJSON)) },
	}
	f := c.Flags()
	cli.Number(f, &p.ranks, "ranks", "n", 1, spawn.MaxRanks, "place this many ranks (default: one per usable processor)")
	cli.Number(f, &p.threads, "threads", "", 1, maxThreads, "place this many threads in each rank (default: COHORT_THREADS, else SLURM_CPUS_PER_TASK, else 1)")
	cli.Func(f, "pin", "", "WHAT", "", "pin the threads to cores, numa or none (default: COHORT_PIN, else none)", func(s string) (err error) {
		p.pin, err = pool.ParsePinning(s)
		return err
	})
	cli.Complete(c, "pin", "cores", "numa", "none")
	bindFlag(c, &p.bind)
	f.BoolVar(&asJSON, "json", false, "print one JSON object instead of lines")
	return c
}

// runDoctor prints what the checks find, and returns the exit status.
func runDoctor(p pinning, asJSON bool) (int, error) {
	var d diagnosis
	// The doctor may be interrupted while a library or a job hangs.
	keeper, err := spawn.StartKeeper()
	if err == nil {
		d.keeper = keeper
		defer keeper.Close()
	}
	d.examine(p)
	if err != nil {
		d.add("backends", "keeper", fail, err.Error(), "cohort run does not work here")
	}
	if asJSON {
		err = printJSON(struct {
			Version  string    `json:"version"`
			System   string    `json:"system"`
			Findings []finding `json:"findings"`
		}{version(), system(), d.all})
	} else {
		var text bytes.Buffer
		fmt.Fprintf(&text, "cohort %s on %s\n", version(), system())
		d.print(&text)
		_, err = text.WriteTo(os.Stdout)
	}
	if err != nil {
		return 1, err
	}
	for _, f := range d.all {
		if f.State == fail {
			return 1, nil
		}
	}
	return 0, nil
}

// maxThreads is the most that a pool takes.
const maxThreads = 4096

func (d *diagnosis) examine(p pinning) {
	root := os.DirFS("/")
	job := topo.ThisJob()
	if node, err := topo.Here(); err != nil {
		d.add("processors", "usable", fail, err.Error(), "")
	} else {
		d.processors(node)
		d.memory(node)
		d.pinning(root, node, p, os.LookupEnv)
		d.job(job, node)
		hostname, hosts := pod.Files()
		d.pod(os.LookupEnv, node, hostname, hosts, net.DefaultResolver.LookupHost)
		d.limits(root, node)
	}
	d.kernel()
	d.tools()
	d.environment()
	d.solvers(os.LookupEnv)
	d.mpi(os.LookupEnv)
	d.start(os.LookupEnv)
	d.backends(os.LookupEnv)
}

func (d *diagnosis) print(w io.Writer) {
	group := ""
	count := map[state]int{}
	for _, f := range d.all {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(w, "\n%s\n", group)
		}
		fmt.Fprintf(w, "  %-4s  %-18s %s\n", f.State, f.Name, f.Value)
		for _, line := range f.Details {
			fmt.Fprintf(w, "%27s%s\n", "", line)
		}
		if f.Library != nil {
			for _, line := range f.Library.lines() {
				fmt.Fprintf(w, "%27s%s\n", "", line)
			}
		}
		if f.Advice != "" {
			fmt.Fprintf(w, "%27s→ %s\n", "", f.Advice)
		}
		count[f.State]++
	}
	var warnings string
	switch n := count[warn]; n {
	case 0:
	case 1:
		warnings = "; 1 check has a warning"
	default:
		warnings = fmt.Sprintf("; %d checks have warnings", n)
	}
	if count[fail] > 0 {
		fmt.Fprintf(w, "\n%d of %d checks failed%s\n", count[fail], len(d.all), warnings)
	} else {
		fmt.Fprintf(w, "\nready%s\n", warnings)
	}
}

func system() string {
	return fmt.Sprintf("%s/%s, %s", kernelName(), runtime.GOARCH, runtime.Version())
}
