package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// options are what the command line says.
type options struct {
	dir        string // of the case
	iterations int
	passes     int
	openings   int
	seed       uint64
	gap        float64
	stall      int
	scenarios  int
	out        string
	policy     string
	outside    bool
	json       bool
	threads    int    // 0: as the environment says
	pin        string // empty: as the environment says
	solver     string
	resilient  bool
	checkpoint string // folder
	every      int    // iterations between checkpoints
	resume     resumeFlag
}

// resumeFlag is --resume, which may be given without a folder: then it is that of --checkpoint.
type resumeFlag struct {
	set bool
	dir string
}

func (r *resumeFlag) String() string   { return r.dir }
func (r *resumeFlag) IsBoolFlag() bool { return true } // so that it may be given without a value

// Set takes the text behind =, which flag gives as true where there is none.
func (r *resumeFlag) Set(s string) error {
	if r.set = true; s != "true" {
		r.dir = s
	}
	return nil
}

// command is a subcommand.
type command struct {
	run   func(*job) error // nil for info
	flags func(*flag.FlagSet, *options)
	help  string
}

var commands = map[string]command{
	"train":    {train, trainFlags, trainHelp},
	"simulate": {simulate, simulateFlags, simulateHelp},
	"info":     {nil, infoFlags, infoHelp},
}

// computeFlags are those of the commands that compute: with what, and how.
func computeFlags(f *flag.FlagSet, o *options) {
	f.Func("threads", "", func(s string) error {
		n, err := strconv.Atoi(s)
		if o.threads = n; err != nil || n < 1 {
			return errors.New("want a whole number of at least 1")
		}
		return nil
	})
	f.BoolVar(&o.resilient, "resilient", false, "")
	o.solver = lp.Auto
	f.Func("solver", "", func(s string) error {
		if o.solver = s; s != lp.Auto && s != lp.Embedded && s != lp.CLP {
			return errors.New("want auto, embedded or clp")
		}
		return nil
	})
	f.Func("pin", "", func(s string) error {
		if o.pin = s; s != "none" && s != "cores" && s != "numa" {
			return errors.New("want none, cores or numa")
		}
		return nil
	})
}

func trainFlags(f *flag.FlagSet, o *options) {
	computeFlags(f, o)
	f.IntVar(&o.iterations, "iterations", 50, "")
	f.IntVar(&o.passes, "passes", 8, "")
	f.IntVar(&o.openings, "openings", 10, "")
	f.Uint64Var(&o.seed, "seed", 1, "")
	f.Float64Var(&o.gap, "gap", 0, "")
	f.IntVar(&o.stall, "stall", 0, "")
	f.IntVar(&o.scenarios, "scenarios", 200, "")
	f.StringVar(&o.out, "out", "", "")
	f.BoolVar(&o.json, "json", false, "")
	f.StringVar(&o.checkpoint, "checkpoint", "", "")
	f.IntVar(&o.every, "checkpoint-every", 10, "")
	f.Var(&o.resume, "resume", "")
}

func simulateFlags(f *flag.FlagSet, o *options) {
	computeFlags(f, o)
	f.StringVar(&o.policy, "policy", "", "")
	f.IntVar(&o.scenarios, "scenarios", 1000, "")
	f.BoolVar(&o.outside, "out-of-sample", false, "")
	f.StringVar(&o.out, "out", "", "")
	f.BoolVar(&o.json, "json", false, "")
}

func infoFlags(f *flag.FlagSet, o *options) {
	f.BoolVar(&o.json, "json", false, "")
}

// errHelp says that help was asked for.
var errHelp = errors.New("help")

// parseOptions reads the arguments of a subcommand. Flags may stand before or after the case, and
// -- ends them.
func parseOptions(name string, cmd command, args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	cmd.flags(f, o)
	var plain, after []string
	behind := -1 // which of plain stands behind --resume
	if i := slices.Index(args, "--"); i >= 0 {
		args, after = args[:i], args[i+1:]
	}
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, errHelp
		} else if err != nil {
			return nil, errors.New(strings.Replace(err.Error(), " -", " --", 1))
		}
		read := args[:len(args)-f.NArg()]
		if args = f.Args(); len(args) > 0 {
			if n := len(read); n > 0 && strings.TrimLeft(read[n-1], "-") == "resume" {
				behind = len(plain)
			}
			plain, args = append(plain, args[0]), args[1:]
		}
	}
	// A folder behind --resume is its own if the case stands elsewhere.
	if behind >= 0 && len(plain)+len(after) == 2 {
		o.resume.dir = plain[behind]
		plain = slices.Delete(plain, behind, behind+1)
	}
	plain = append(plain, after...)
	if len(plain) != 1 {
		return nil, fmt.Errorf("got %d arguments, want one: the folder of a case", len(plain))
	}
	o.dir = plain[0]
	return o, o.check(name)
}

// check reports values that no run can take. The flags have been read.
func (o *options) check(name string) error {
	atLeast := func(flag string, v, least int) error {
		if v < least {
			return fmt.Errorf("--%s: got %d, want a whole number of at least %d", flag, v, least)
		}
		return nil
	}
	switch name {
	case "train":
		var err error
		if !(o.gap >= 0 && o.gap < 1) {
			err = fmt.Errorf("--gap: got %g, want a number from 0 to below 1, as 0.01", o.gap)
		}
		if o.resume.set && o.resume.dir == "" && o.checkpoint == "" {
			err = errors.Join(err, errors.New("--resume: want the folder of the checkpoints, here or by --checkpoint"))
		}
		return errors.Join(atLeast("iterations", o.iterations, 1), atLeast("checkpoint-every", o.every, 1), atLeast("passes", o.passes, 1),
			atLeast("openings", o.openings, 1), atLeast("scenarios", o.scenarios, 2), atLeast("stall", o.stall, 0), err)
	case "simulate":
		var err error
		if o.policy == "" {
			err = errors.New("--policy: missing, want the folder that sddp train --out wrote")
		}
		return errors.Join(err, atLeast("scenarios", o.scenarios, 2))
	}
	return nil
}
