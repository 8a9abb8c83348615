package sddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// Iteration is the state after an iteration. Everything but the times is the same on all ranks and for
// any number of ranks.
type Iteration struct {
	Number     int      // from 1
	LowerBound float64  // no policy costs less in expectation, or has a smaller risk
	Upper      Estimate // cost of the forward passes, which use the policy before this iteration
	// Gap is the distance from the lower bound to the upper end of Upper's interval, relative to the bound. It
	// is infinite if it is unknown: with one pass, or with a Risk, since costs do not estimate a nested risk.
	Gap      float64
	Cuts     int   // in the pool, over all stages
	ListCuts []int // in the pool, by list (Pool.Lists)
	Solves   int64 // linear programs solved, by all ranks

	LP    time.Duration // in linear programs, until all threads of a rank are done; mean of the ranks
	Comm  time.Duration // in communication, with waiting; mean of the ranks
	Total time.Duration // on this rank
}

// Training is the outcome of Train.
type Training struct {
	Policy     *Policy
	Iterations []Iteration
	Resumed    int    // how many of them are from a checkpoint
	Stopped    string // the reason why the training stopped
	Solver     lp.Info
	Solves     int64         // in all iterations
	LP, Comm   time.Duration // in the iterations of this run
	Elapsed    time.Duration // of this run
	Gap        Estimate      // how much the policy costs more than the lower bound, if Options.GapEstimate asks for it
	// Unsaved is the reason, on all ranks, why the last checkpoint could not be written. It is nil if it
	// was written or none was requested.
	Unsaved error
}

// Last returns the state after the last iteration.
//
// Not collective.
func (t *Training) Last() Iteration { return t.Iterations[len(t.Iterations)-1] }

// trainer is one rank's part of a training.
type trainer struct {
	*team
	*crew
	c        *Case
	noise    *Noise
	inflows  *region // of noise
	memory   *cutMemory
	pool     *Pool      // in memory
	planners []*planner // by worker
	opt      Options
	of       origin
	its      []Iteration // completed
	resumed  int         // how many of them are from a checkpoint
	lo, hi   int         // forward passes of this rank
	trials   []float64   // storage at the end of all stages but the last, by pass, stage, reservoir
	cuts     []float64   // the cuts of one stage, by pass and future
	one      []float64   // those of one future
	least    []float64   // the smallest state
	most     []float64   // the largest state
	costs    []float64   // of this rank's passes
	lower    float64
	busy     time.Duration // in linear programs, so far
	saver    *saver        // on rank 0, with checkpoints
	stop     bool          // a rank was asked to stop
	resize   bool          // the job is to have another size
	began    time.Time
	late     bool // the time limit has passed on rank 0
}

// Train computes a policy for a case. Everything in the result but the times depends only on the case and
// the options, not on the number of ranks and threads or on the backend.
//
// Collective: all ranks of world call it with the same case and options.
//
// Errors: those of the options and of the linear programs; [ErrPeer] if only another rank failed;
// [ErrStopped]. With checkpoints, the error of a training that has begun is a [*CheckpointError] on rank 0,
// and on all ranks if it wraps [ErrStopped].
//
// Deadlines: when ctx ends on one rank, the calls of all ranks end with an error.
func Train(ctx context.Context, world *cohort.Comm, c *Case, opt Options) (out *Training, err error) {
	began := time.Now()
	opt, err = opt.withDefaults()
	if err != nil {
		return nil, err
	}
	opt.Openings = c.openings(opt.Openings)
	if opt.Sampling, err = opt.Sampling.checked(c); err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	if err := opt.checkWarm(c); err != nil {
		return nil, fmt.Errorf("train: warm start: %w", err)
	}
	tr := &trainer{team: newTeam(world.WithContext(ctx)), c: c, opt: opt, least: c.minState(), most: c.maxState(), began: began}
	if tr.crew, err = newCrew(tr.world, opt.Threads, opt.Pin, opt.Env); err != nil {
		return nil, err
	}
	defer func() { // also after a panic
		if e := tr.crew.close(); err == nil && e != nil {
			out, err = nil, e
		}
	}()
	err = tr.crew.run(func() (err error) {
		defer func() { // also after a panic
			if e := tr.close(); err == nil {
				err = e
			}
		}()
		out, err = tr.train(ctx)
		switch {
		case err == nil:
			tr.saver = nil // a later loss saves nothing
		case opt.Recovery == nil || !isLoss(err):
			err = tr.ended(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Elapsed = time.Since(began)
	return out, nil
}

// train does the work of this rank. After a loss of ranks it continues from the completed iterations.
func (tr *trainer) train(ctx context.Context) (*Training, error) {
	opt, c := tr.opt, tr.c
	if err := tr.same("case and options", opt.key(c)); err != nil {
		return nil, err
	}
	newSolver, solver, err := tr.open(opt.Solver, c)
	if err != nil {
		return nil, err
	}
	noise, inflows, err := shareNoise(tr.world, tr.crew, c, opt.Seed, opt.Openings)
	if err != nil {
		return nil, err
	}
	tr.noise = noise
	tr.of = originOf(c, opt, solver, noise, mostSeeds(tr.seeds()))
	from, err := tr.openCheckpoints()
	if err != nil {
		return nil, errors.Join(err, inflows.Close())
	}
	defer from.close()
	tr.inflows = inflows
	tr.memory = newCutMemory(tr.world, newPoolOf(opt.futures(c), c.states()), opt.Passes, opt.Iterations, mostSeeds(tr.seeds()))
	if tr.pool = tr.memory.pool; opt.CutSelection {
		tr.pool.selection = newSelection(c.Stages, c.states())
	}
	tr.planners, err = forWorkers(tr.crew, func() (*planner, error) { return newPlanner(c, tr.noise, tr.pool, newSolver) })
	if err := tr.together("linear programs", err); err != nil {
		return nil, err
	}
	for _, p := range tr.planners {
		p.risk = opt.Risk
	}
	tr.lo, tr.hi = tr.block(tr.rank, opt.Passes)
	tr.trials = make([]float64, opt.Passes*tr.trialWidth())
	tr.cuts = make([]float64, opt.Passes*tr.pool.futures.most()*(1+c.states()))
	tr.costs = make([]float64, tr.hi-tr.lo)
	if err := tr.restore(from, solver); err != nil {
		return nil, err
	}

	if err := tr.plant(); err != nil {
		return nil, err
	}

	work, cancel := opt.untilStop(ctx)
	defer cancel()
	for begun := len(tr.its); ; {
		stopped, err := tr.enough(work)
		switch {
		case err != nil:
			return nil, tr.stopped(err)
		case stopped != "":
			return tr.result(ctx, solver, stopped)
		case tr.stop:
			return nil, tr.stopped(ErrStopped)
		case tr.resize && opt.Recovery != nil:
			return nil, errResize
		case len(tr.its) > begun:
			tr.saver.due(tr.its, tr.pool)
		}
		it, err := tr.iterate(work, len(tr.its))
		if err != nil {
			return nil, tr.stopped(fmt.Errorf("iteration %d: %w", len(tr.its)+1, err))
		}
		tr.done(it)
	}
}

// enough returns the reason to stop after the completed iterations, or "".
//
// Collective: all ranks call it.
func (tr *trainer) enough(ctx context.Context) (reason string, err error) {
	n := len(tr.its)
	if n == 0 {
		return "", nil
	}
	if tr.opt.Gap > 0 && n%tr.opt.GapEvery == 0 {
		scenarios, err := tr.gapCloses(ctx)
		if err != nil {
			return "", err
		}
		if scenarios > 0 {
			return fmt.Sprintf("a test of %d scenarios shows that the gap is within %g %%", scenarios, 100*tr.opt.Gap), nil
		}
	}
	if reason = tr.opt.stop(tr.its); reason == "" && tr.late {
		reason = fmt.Sprintf("the time limit of %v has passed", tr.opt.TimeLimit)
	}
	return reason, nil
}

// done records a completed iteration.
func (tr *trainer) done(it Iteration) {
	tr.its = append(tr.its, it)
	tr.lower = it.LowerBound
	if tr.opt.Progress != nil {
		tr.opt.Progress(it)
	}
}

// close frees the shared memory. With a Recovery it keeps a copy of the cuts.
func (tr *trainer) close() error {
	if tr.memory == nil {
		return nil
	}
	tr.saver.wait() // the saver reads the cuts
	pool := tr.pool
	if tr.pool, tr.planners = nil, nil; tr.opt.Recovery != nil && len(tr.its) > 0 {
		tr.pool = pool.copied()
		tr.opt.Recovery.kept = tr
	}
	err := errors.Join(tr.memory.close(), tr.inflows.Close())
	tr.memory, tr.inflows = nil, nil
	return err
}

// result returns the result of the training, the same on all ranks.
//
// Collective: all ranks call it.
func (tr *trainer) result(ctx context.Context, solver lp.Info, stopped string) (*Training, error) {
	out := &Training{Iterations: tr.its, Resumed: tr.resumed, Stopped: stopped, Solver: solver}
	for i, it := range tr.its {
		out.Solves += it.Solves
		if i >= tr.resumed {
			out.LP += it.LP
			out.Comm += it.Comm
		}
	}
	var err error
	if _, out.Unsaved, err = tr.saveAll(); err != nil {
		return nil, err
	}
	if tr.opt.GapEstimate > 0 {
		if out.Gap, err = tr.estimateGap(ctx); err != nil {
			return nil, tr.stopped(err)
		}
	}
	out.Policy = &Policy{
		CaseName: tr.c.Name, CaseSHA256: tr.c.SHA256(), FutureSHA256: futureOf(tr.c, tr.noise, tr.opt.Risk), Reservoirs: tr.c.reservoirNames(),
		Seed: tr.opt.Seed, Openings: tr.opt.Openings, Passes: tr.opt.Passes, Risk: tr.opt.Risk, MultiCut: tr.opt.MultiCut,
		Iterations: len(tr.its), LowerBound: tr.lower, Pool: tr.pool.clone(),
	}
	return out, tr.same("cuts", fingerprint(out.Policy.Pool.SHA256()))
}

// trialWidth returns how many numbers the trial points of a forward pass have.
func (tr *trainer) trialWidth() int { return (tr.c.Stages - 1) * tr.c.states() }

// solves returns how many linear programs this rank has solved so far.
func (tr *trainer) solves() (n int64) {
	for _, p := range tr.planners {
		n += p.solves()
	}
	return n
}

// trial returns the trial point of a forward pass at the end of a stage.
func (tr *trainer) trial(pass, stage int) []float64 {
	at := pass*tr.trialWidth() + stage*tr.pool.reserv
	return tr.trials[at : at+tr.pool.reserv]
}

// iterate runs one iteration:
//
//  1. Each rank runs its block of the forward passes on its workers. All ranks receive the trial points.
//  2. Stage by stage, from the last but one to the first, each rank computes the cuts at the trial points
//     of its passes. All ranks receive them and add those that are new to the pool, in the order of the
//     passes.
//  3. With cut selection, every rank finds the cuts that are idle from now on.
//  4. Every rank solves the first stage for the lower bound. Bounds and times are reduced.
func (tr *trainer) iterate(ctx context.Context, iteration int) (Iteration, error) {
	began, busy, waited, solves := time.Now(), tr.busy, tr.waited, tr.solves()

	if err := tr.memory.reserve(iteration); err != nil {
		return Iteration{}, err
	}
	failed := tr.timed(func() error { return tr.forwardPasses(ctx, iteration) })
	if err := tr.share("trial points", tr.trials, tr.opt.Passes, tr.trialWidth(), failed); err != nil {
		return Iteration{}, err
	}
	for t := tr.c.Stages - 2; t >= 0; t-- {
		if err := tr.backwardPasses(ctx, t); err != nil {
			return Iteration{}, err
		}
		start := time.Now()
		err := tr.addCuts(t)
		tr.waited += time.Since(start)
		if err != nil {
			return Iteration{}, err
		}
	}

	if tr.pool.selection != nil {
		tr.selectCuts()
	}
	lower, solved := math.NaN(), tr.solves()
	failed = tr.timed(func() (err error) {
		lower, err = tr.planners[0].lowerBound()
		return err
	})
	if tr.rank == 0 {
		solved = tr.solves() // all ranks solve it; count it once
	}
	it := Iteration{Number: iteration + 1, Cuts: tr.pool.Total(), ListCuts: tr.pool.lens()}
	sums := sums{solves: solved - solves, busy: tr.busy - busy, waited: tr.waited - waited}
	if errors.Is(context.Cause(ctx), ErrStopped) {
		sums.stops = 1
	}
	select {
	case <-tr.world.Resized():
		sums.resized = 1
	default:
	}
	if limit := tr.opt.TimeLimit; limit > 0 && tr.rank == 0 && time.Since(tr.began) >= limit {
		sums.late = 1
	}
	lower, err := tr.reduce(&sums, lower, failed)
	if err != nil {
		return it, err
	}
	tr.stop, tr.late, tr.resize = sums.stops > 0, sums.late > 0, sums.resized > 0
	// All are lower bounds, so the largest is one. It never falls, not even by the solver's tolerance.
	it.LowerBound = max(tr.lower, lower)
	start := time.Now()
	if it.Upper, err = estimateAll(tr.world, tr.costs, tr.opt.Passes); err != nil {
		return it, fmt.Errorf("bounds: %w", err)
	}
	tr.waited += time.Since(start)
	it.Gap = math.Inf(1)
	if tr.opt.Risk.Neutral() {
		it.Gap = it.Upper.Gap(it.LowerBound)
	}
	it.Solves = sums.solves
	it.LP = sums.busy / time.Duration(tr.size)
	it.Comm = sums.waited / time.Duration(tr.size)
	it.Total = time.Since(began)
	return it, nil
}

// timed runs work and adds its time to that of linear programs.
func (tr *trainer) timed(work func() error) error {
	start := time.Now()
	err := work()
	tr.busy += time.Since(start)
	return err
}

// sums are the figures of an iteration that are summed over the ranks.
type sums struct {
	solves       int64
	busy, waited time.Duration
	stops        int64 // how many ranks were asked to stop
	late         int64 // 1 if the time limit has passed
	resized      int64 // how many ranks know that the job is to have another size
}

// reduce sums s over all ranks and returns the lower bound, which must be the same on all: they have solved the same
// program from the same basis. The minimum of the bounds and that of their negatives disagree only if the arithmetic of
// the ranks differs, and then they cannot train one policy.
func (tr *trainer) reduce(s *sums, lower float64, failed error) (float64, error) {
	start := time.Now()
	whole := []int64{s.solves, int64(s.busy), int64(s.waited), s.stops, s.late, s.resized}
	bounds := []float64{lower, -lower}
	err := cohort.Allreduce(tr.world, whole, whole, cohort.Sum)
	if err == nil {
		err = cohort.Allreduce(tr.world, bounds, bounds, cohort.Min)
	}
	tr.waited += time.Since(start)
	switch {
	case failed != nil:
		return 0, failed
	case err != nil:
		return 0, fmt.Errorf("bounds: %w", err)
	case math.IsNaN(bounds[0]):
		return 0, fmt.Errorf("bounds: %w", ErrPeer)
	case bounds[0] != -bounds[1]:
		return 0, fmt.Errorf("bounds: the lower bound is %v on one rank and %v on another: their processors round differently; use nodes of one kind", bounds[0], -bounds[1])
	}
	s.solves, s.busy, s.waited = whole[0], time.Duration(whole[1]), time.Duration(whole[2])
	s.stops, s.late, s.resized = whole[3], whole[4], whole[5]
	return bounds[0], nil
}
