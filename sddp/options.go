package sddp

import (
	"errors"
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// Options say how to train. The zero value trains as the command does by default.
type Options struct {
	Iterations int    // at most; 0 means 50
	Passes     int    // forward passes per iteration; 0 means 8
	Openings   int    // inflows per stage; 0 means 10
	Seed       uint64 // of all random numbers

	// Gap stops the training when the upper end of the 95 % interval of the upper bound is within
	// this part of the lower bound (Shapiro, 2011); 0 never does.
	Gap float64
	// Stall stops it when the lower bound has grown by less than StallTolerance of itself over
	// this many iterations; 0 never does.
	Stall          int
	StallTolerance float64 // 0 means 1e-6

	// Threads is how many threads each rank computes with; 0 means COHORT_THREADS, else
	// SLURM_CPUS_PER_TASK, else 1. Pin says to what they are pinned: none, cores or numa; empty means
	// COHORT_PIN, else none. Neither matters for the result, nor need the ranks have the same.
	Threads int
	Pin     string
	// Env, if not nil, has threads that are there already (hybrid.Start): Threads and Pin do not count.
	Env *hybrid.Env

	// Solver is what solves the linear programs: auto, embedded or clp (lp.Open); empty means auto. Each
	// finds an optimal policy, but not the same one.
	Solver string

	// Checkpoint, if not empty, is a folder to which rank 0 writes what the training has come to: after
	// every CheckpointEvery iterations (0 means 10), at the end, and when the training ends early, for
	// whatever reason. It is made if it is not there. One that has checkpoints already is an error,
	// unless they are those to Resume from.
	Checkpoint      string
	CheckpointEvery int
	// Resume, if not empty, is the Checkpoint folder of a training to go on with. The outcome is that of
	// a training with these options which was never interrupted: case, seed, passes, openings and
	// solver have to be the same as they were, ranks and threads need not, nor what makes it stop. It
	// is an error if there is no checkpoint in it; with ResumeOrBegin the training then begins.
	Resume        string
	ResumeOrBegin bool

	// Recovery, if not nil, lets the training go on when ranks are lost, at the cost of the iteration it
	// is in. It is on all ranks or on none.
	Recovery *Recovery

	// Stop, if not nil, ends the training early when it is closed, on whichever rank: all ranks drop the
	// iteration they are in, write the checkpoint, and return an error that wraps ErrStopped.
	Stop <-chan struct{}

	// Progress, if not nil, is called after every iteration, on the rank it was given on, when none
	// of its threads computes.
	Progress func(Iteration)
	// Warn, if not nil, is called in the same way with what went wrong and does not end the training: a
	// checkpoint that cannot be written, or is damaged, for which reason the one before it is taken.
	Warn func(error)
}

// The limits of the options.
const (
	maxIterations = 100000
	maxPasses     = 100000
	maxOpenings   = 100000
	maxScenarios  = 10000000
)

// withDefaults fills the zeros in and checks the rest.
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
		return o, errors.New("train: stall: got a negative number")
	}
	return o, nil
}

// key returns a number that differs between ranks that are not doing the same.
func (o Options) key(c *Case) uint64 {
	recovers := o.Recovery != nil
	o.Progress, o.Warn, o.Stop, o.Recovery, o.Threads, o.Pin, o.Env = nil, nil, nil, nil, 0, "", nil
	return fingerprint(fmt.Sprint(c.SHA256(), o, recovers))
}

// stop says why to stop after these iterations, or returns the empty text.
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
