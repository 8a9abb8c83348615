package sddp

import (
	"errors"
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// Options configure a training. The zero value trains as the command does by default.
type Options struct {
	Iterations int    // at most; 0 means 50
	Passes     int    // forward passes per iteration; 0 means 8
	Openings   int    // inflows per stage; 0 means 10
	Seed       uint64 // of all random numbers

	// Gap stops the training when Iteration.Gap is at most this (Shapiro, 2011); 0 disables it.
	Gap float64
	// Stall stops the training when the lower bound has grown by less than StallTolerance, relative to
	// itself, over this many iterations; 0 disables it.
	Stall          int
	StallTolerance float64 // 0 means 1e-6

	// Threads is the number of threads of this rank; 0 means COHORT_THREADS, else SLURM_CPUS_PER_TASK,
	// else 1. Pin pins them: none, cores or numa; empty means COHORT_PIN, else none. The result does not
	// depend on either, and ranks may differ in them.
	Threads int
	Pin     string
	// Env, if not nil, provides threads that the program has started (hybrid.Start). Threads and Pin are
	// then ignored.
	Env *hybrid.Env

	// Solver solves the linear programs: auto, embedded or clp (lp.Open); empty means auto. Each solver
	// finds an optimal policy, but not the same one.
	Solver string

	// Checkpoint, if not empty, is a folder to which rank 0 saves the training: after every
	// CheckpointEvery iterations (0 means 10), at the end, and when the training ends early. It is
	// created if necessary. A folder that has checkpoints is an error, unless it is the folder to Resume
	// from.
	Checkpoint      string
	CheckpointEvery int
	// Resume, if not empty, is the Checkpoint folder of a training to continue. The result is that of an
	// uninterrupted training with these options. Case, seed, passes, openings and solver must be the
	// same as before; ranks, threads and stopping rules need not. A folder without checkpoints is an
	// error, unless ResumeOrBegin is set: then the training begins.
	Resume        string
	ResumeOrBegin bool

	// Recovery, if not nil, lets the training continue when ranks die. The iteration in progress is
	// repeated. It is set on all ranks or on none.
	Recovery *Recovery

	// Stop, if not nil, ends the training early when it is closed on any rank: all ranks drop the current
	// iteration, rank 0 saves a checkpoint, and Train returns an error that wraps ErrStopped.
	Stop <-chan struct{}

	// Progress, if not nil, is called after every iteration on this rank, while its threads are idle.
	Progress func(Iteration)
	// Warn, if not nil, is called in the same way with a problem that does not end the training: a
	// checkpoint that cannot be written, or a damaged one, in whose place the previous one is used.
	Warn func(error)
}

// The limits of the options.
const (
	maxIterations = 100000
	maxPasses     = 100000
	maxOpenings   = 100000
	maxScenarios  = 10000000
)

// withDefaults replaces zeros by defaults and checks the options.
func (o Options) withDefaults() (Options, error) {
	defaults := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	defaults(&o.Iterations, 50)
	defaults(&o.Passes, 8)
	defaults(&o.Openings, 10)
	defaults(&o.CheckpointEvery, 10)
	if o.Solver == "" {
		o.Solver = lp.Auto
	}
	if o.StallTolerance == 0 {
		o.StallTolerance = 1e-6
	}
	for _, limit := range []struct {
		name    string
		v, most int
	}{
		{"iterations", o.Iterations, maxIterations},
		{"passes", o.Passes, maxPasses},
		{"openings", o.Openings, maxOpenings},
		{"iterations between checkpoints", o.CheckpointEvery, maxIterations},
	} {
		if limit.v < 1 || limit.v > limit.most {
			return o, fmt.Errorf("train: %s: got %d, want a whole number from 1 to %d", limit.name, limit.v, limit.most)
		}
	}
	if !(o.Gap >= 0 && o.Gap < 1) {
		return o, fmt.Errorf("train: gap: got %g, want a number from 0 to below 1", o.Gap)
	}
	if o.Stall < 0 || o.StallTolerance < 0 {
		return o, errors.New("train: stall: got a negative number, want at least 0")
	}
	return o, nil
}

// key returns a hash of what must be the same on all ranks.
func (o Options) key(c *Case) uint64 {
	recovers := o.Recovery != nil
	o.Progress, o.Warn, o.Stop, o.Recovery, o.Threads, o.Pin, o.Env = nil, nil, nil, nil, 0, "", nil
	return fingerprint(fmt.Sprint(c.SHA256(), o, recovers))
}

// stop returns the reason to stop after these iterations, or "".
func (o Options) stop(done []Iteration) string {
	last := done[len(done)-1]
	if o.Gap > 0 && last.Gap <= o.Gap {
		return fmt.Sprintf("the gap is within %g %%", 100*o.Gap)
	}
	if o.Stall > 0 && len(done) > o.Stall {
		before := done[len(done)-1-o.Stall].LowerBound
		if last.LowerBound-before <= o.StallTolerance*math.Abs(last.LowerBound) {
			return fmt.Sprintf("the lower bound has stalled for %d iterations", o.Stall)
		}
	}
	if len(done) >= o.Iterations {
		return "all iterations are done"
	}
	return ""
}
