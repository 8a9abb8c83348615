package sddp

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// Options configure a training. The zero value trains as the command does by default.
type Options struct {
	Iterations int    // at most; 0 means 50
	Passes     int    // forward passes per iteration; 0 means 8
	Openings   int    // inflows per stage; 0 means 10. Not used if the case gives its openings
	Seed       uint64 // of all random numbers

	// Sampling gives the inflows of the forward passes. Other than in sample, the cost of the passes does not
	// estimate that of the policy on the openings, so the gap compares two problems.
	Sampling Sampling
	Risk     Risk // that the policy minimizes; the zero value is the expected cost

	// OpeningBlocks is the number of blocks that the openings of a trial point are divided into in a backward
	// pass; 0 means 1. More ranks and threads than passes help only with more than one. Each block begins at the
	// canonical basis, which takes more work than to continue.
	OpeningBlocks int

	// CutSelection leaves out of the programs all cuts that are highest at no trial point so far (level one). The
	// policy has the others.
	CutSelection bool

	// MultiCut keeps the cuts of each opening instead of their mean: a forward pass then gives a cut for each
	// opening of a stage, and the program of a stage has a theta for each of them. It needs fewer iterations, each of
	// which takes longer. With a Risk or CutSelection it is an error.
	MultiCut bool

	// Warm, if not nil, is the policy of another training to begin with. If only the initial storage differs
	// from that training, its cuts are those of this one too. If load, inflows or anything else differs, they
	// guide the forward passes of the first two iterations and are no part of the new policy. Both trainings must
	// have the same MultiCut.
	Warm *Policy

	// Gap stops the training when the policy is shown to cost at most this share more than the lower bound;
	// 0 disables it. After every GapEvery iterations (0 means 10) a test simulates up to GapScenarios new
	// scenarios (0 means 1000). The probability to stop although the gap is larger is below 5 %. With a Risk
	// it is an error: no simulation bounds a nested risk from above.
	Gap          float64
	GapEvery     int
	GapScenarios int
	// GapEstimate is on how many new scenarios, 0 or at least 2, the gap is estimated at the end of the training
	// (Training.Gap). With a Risk it is an error.
	GapEstimate int
	// Stall stops the training when the lower bound has grown by less than StallTolerance, relative to
	// itself, over this many iterations; 0 disables it.
	Stall          int
	StallTolerance float64 // 0 means 1e-6
	// TimeLimit stops the training after the iteration during which it passes on rank 0; 0 disables it. The
	// number of iterations then depends on the machine.
	TimeLimit time.Duration

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
	// uninterrupted training with these options. Case, seed, passes and openings must be the same as
	// before, and Risk; ranks, threads and stopping rules need not. Another solver than before is a warning: its
	// cuts have other bits. A folder without checkpoints is an error, unless ResumeOrBegin is set: then
	// the training begins.
	Resume        string
	ResumeOrBegin bool

	// Recovery, if not nil, is the one in whose Do this training is. A training that is repeated after a loss continues
	// after the iterations that a rank has completed. It is set on all ranks or on none.
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

// MinGapScenarios is the least Options.GapScenarios: the first look at an eighth of them needs enough for
// their mean to be about normal.
const MinGapScenarios = 400

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
	defaults(&o.OpeningBlocks, 1)
	defaults(&o.CheckpointEvery, 10)
	defaults(&o.GapEvery, 10)
	defaults(&o.GapScenarios, 1000)
	if o.Solver == "" {
		o.Solver = lp.Auto
	}
	if o.StallTolerance == 0 {
		o.StallTolerance = 1e-6
	}
	for _, limit := range []struct {
		name           string
		v, least, most int
	}{
		{"iterations", o.Iterations, 1, maxIterations},
		{"passes", o.Passes, 1, maxPasses},
		{"openings", o.Openings, 1, maxOpenings},
		{"blocks of openings", o.OpeningBlocks, 1, maxOpenings},
		{"iterations between checkpoints", o.CheckpointEvery, 1, maxIterations},
		{"iterations between tests of the gap", o.GapEvery, 1, maxIterations},
		{"scenarios for the gap", o.GapScenarios, MinGapScenarios, maxScenarios},
	} {
		if limit.v < limit.least || limit.v > limit.most {
			return o, fmt.Errorf("train: %s: got %d, want a whole number from %d to %d", limit.name, limit.v, limit.least, limit.most)
		}
	}
	if !(o.Gap >= 0 && o.Gap < 1) {
		return o, fmt.Errorf("train: gap: got %g, want a number from 0 to below 1", o.Gap)
	}
	if err := o.Risk.check(); err != nil {
		return o, fmt.Errorf("train: %w", err)
	}
	if o.GapEstimate < 0 || o.GapEstimate == 1 || o.GapEstimate > maxScenarios {
		return o, fmt.Errorf("train: scenarios to estimate the gap: got %d, want 0 or a whole number from 2 to %d", o.GapEstimate, maxScenarios)
	}
	if (o.Gap > 0 || o.GapEstimate > 0) && !o.Risk.Neutral() {
		return o, errors.New("train: gap: a simulation does not bound a nested CVaR from above, so the gap is unknown; stop by stall, time or iterations")
	}
	if o.MultiCut && !o.Risk.Neutral() {
		return o, errors.New("train: multi-cut and CVaR: a nested CVaR needs cuts of the risk, and multi-cut has those of each opening; leave out one of them")
	}
	if o.MultiCut && o.CutSelection {
		return o, errors.New("train: multi-cut and cut selection: the selection compares cuts of the expected cost, and multi-cut has those of each opening; leave out one of them")
	}
	if o.Stall < 0 || !(o.StallTolerance >= 0) || o.TimeLimit < 0 {
		return o, errors.New("train: stall or time limit: got a negative number, want at least 0")
	}
	return o, nil
}

// method returns a text of the options that change the cuts, but for those that have their own name in a
// checkpoint.
func (o Options) method() string {
	text := o.Risk.String()
	if o.Sampling != "" && o.Sampling != InSample {
		text += fmt.Sprintf("; forward passes %s", o.Sampling)
	}
	if o.OpeningBlocks > 1 {
		text += fmt.Sprintf("; openings in %d blocks", o.OpeningBlocks)
	}
	if o.CutSelection {
		text += "; cut selection"
	}
	if o.MultiCut {
		text += "; multi-cut"
	}
	if o.Warm != nil {
		text += "; warm start from cuts " + o.Warm.Pool.SHA256()
	}
	return text
}

// key returns a hash of what must be the same on all ranks.
func (o Options) key(c *Case) uint64 {
	method, recovers := o.method(), o.Recovery != nil
	o.Warm = nil
	o.Progress, o.Warn, o.Stop, o.Recovery, o.Threads, o.Pin, o.Env = nil, nil, nil, nil, 0, "", nil
	return fingerprint(fmt.Sprint(c.SHA256(), o, method, recovers))
}

// stop returns the reason to stop after these iterations, or "". The test of the gap is not part of it.
func (o Options) stop(done []Iteration) string {
	last := done[len(done)-1]
	if o.Stall > 0 && len(done) > o.Stall {
		before := done[len(done)-1-o.Stall].LowerBound
		if last.LowerBound-before <= o.StallTolerance*math.Abs(last.LowerBound) {
			return fmt.Sprintf("the lower bound has risen by no more than %g in %d iterations, relative to itself", o.StallTolerance, o.Stall)
		}
	}
	if len(done) >= o.Iterations {
		return "all iterations are done"
	}
	return ""
}
