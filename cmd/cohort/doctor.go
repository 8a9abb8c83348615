package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

var doctorCommand = command{
	name:    "doctor",
	summary: "Say what this machine offers to ranks, and what is wrong with it.",
	setup:   setupDoctor,
	about: `
Each line is ok; warn, where programs run but less well than they could; fail,
where something that cohort needs does not work; or none, for what is not there
and nothing else needs. The status is 1 if any line is fail.

Jobs of two ranks are run to find out what the backends really do, and each MPI
library is loaded by a process of its own.
`,
}

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

	Library *report `json:"library,omitempty"` // of an MPI library
}

// diagnosis collects findings.
type diagnosis struct{ all []finding }

func (d *diagnosis) add(group, name string, s state, value, advice string) {
	d.all = append(d.all, finding{Group: group, Name: name, State: s, Value: value, Advice: advice})
}

func setupDoctor(o *options) func([]string) (int, error) {
	asJSON := false
	o.flag(&asJSON, 0, "json", "print one JSON object instead of lines")
	return func(args []string) (int, error) {
		if len(args) > 0 {
			return statusUsage, usagef("unexpected argument %q", args[0])
		}
		var d diagnosis
		d.examine()
		if asJSON {
			out := struct {
				Version  string    `json:"version"`
				System   string    `json:"system"`
				Findings []finding `json:"findings"`
			}{version(), system(), d.all}
			text, err := json.MarshalIndent(out, "", "  ")
			if err != nil {
				return 1, err
			}
			fmt.Printf("%s\n", text)
		} else {
			fmt.Printf("cohort %s on %s\n", version(), system())
			d.print(os.Stdout)
		}
		for _, f := range d.all {
			if f.State == fail {
				return 1, nil
			}
		}
		return 0, nil
	}
}

// examine finds everything out.
func (d *diagnosis) examine() {
	m := spawn.ThisMachine()
	d.processors(m)
	d.memory()
	d.kernel()
	d.limits()
	d.tools()
	d.environment()
	d.mpi(os.LookupEnv)
	d.backends()
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
	switch {
	case count[fail] > 0:
		fmt.Fprintf(w, "\n%d of %d checks failed, %d with a warning\n", count[fail], len(d.all), count[warn])
	case count[warn] > 0:
		fmt.Fprintf(w, "\nready, %d with a warning\n", count[warn])
	default:
		fmt.Fprint(w, "\nready\n")
	}
}

func system() string {
	return fmt.Sprintf("%s/%s, %s", kernelName(), runtime.GOARCH, runtime.Version())
}
