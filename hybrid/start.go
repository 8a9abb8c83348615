package hybrid

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// Start joins the job that this process was started in and gives the rank its workers. It
// takes the steps listed in the package documentation. cfg may be nil.
//
// Collective: all processes of the job call it, once. The ranks may differ in their number
// of threads.
//
// Errors: a [StepError]. If another rank failed, the error names that rank, and has the text and
// the sentinel of its error.
//
// Deadline: Start fails if ctx ends first. Afterwards the operations of the world end when ctx
// does, as for [cohort.Init].
func Start(ctx context.Context, cfg *Config) (*Env, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if cfg == nil {
		cfg = &Config{}
	}
	if ctx.Err() != nil {
		return nil, &StepError{Step: StepBackend, Rank: cohort.Undefined, Err: ended(ctx)}
	}
	world, err := cohort.Init(ctx, cfg.Job)
	if err != nil {
		return nil, &StepError{Step: StepBackend, Rank: cohort.Undefined, Err: err}
	}
	e := &Env{World: world}
	e.done(StepBackend, world.Close)
	return e.start(ctx, cfg, &machinery)
}

// Join gives the rank its workers in an existing world. It takes all steps but the first. Close
// of the Env leaves the world open. cfg may be nil.
//
// Collective: all ranks of world call it. The ranks may differ in their number of threads.
//
// Errors: as for [Start].
func Join(world *cohort.Comm, cfg *Config) (*Env, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	if world == nil {
		return nil, &StepError{Step: StepBackend, Rank: cohort.Undefined, Err: fmt.Errorf("%w: the communicator is nil", cohort.ErrComm)}
	}
	e := &Env{World: world}
	return e.start(context.Background(), cfg, &machinery)
}

// tools are functions that tests replace, because they fail on no machine that tests run on.
type tools struct {
	here  func() (*topo.Node, error)
	quiet func() ([]pool.Setting, error)
}

var machinery = tools{
	here:  topo.Here,
	quiet: func() ([]pool.Setting, error) { return pool.QuietSolvers(nil, nil) },
}

// start takes the steps after the first. If one fails, it undoes all steps taken.
func (e *Env) start(ctx context.Context, cfg *Config, with *tools) (*Env, error) {
	if err := e.take(ctx, cfg, with); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// take takes the steps:
//
//  1. Each rank determines its topology and resolves its settings. Then all agree that none failed.
//  2. The ranks of a node divide its processors. Then all agree, because only the ranks of one node may fail.
//  3. Each rank starts its workers, sets the variables and checks the memory policy. Then all agree,
//     before the workspaces, which may take long or need the other ranks.
//  4. The workers make their workspaces. Then all agree.
//  5. Rank 0 writes the summary. Then all agree.
func (e *Env) take(ctx context.Context, cfg *Config, with *tools) error {
	var f failure
	var resolved pool.Config
	f.try(ctx, StepTopology, func() (err error) {
		e.Topology = e.World.Topology()
		e.Machine, err = with.here()
		return err
	})
	f.try(ctx, StepPool, func() (err error) {
		resolved, err = pool.Config{Threads: cfg.Threads, Pin: cfg.Pin}.Resolved()
		return err
	})
	if err := agree(e.World, f); err != nil {
		return err
	}

	p, err := e.joinNode(resolved.Threads) // even if ctx has ended: the other ranks need this one
	f = failure{StepNode, err}
	if err := agree(e.World, f); err != nil {
		return err
	}

	var plan *topo.Plan
	f.try(ctx, StepPool, func() error {
		if plan, err = planFor(e.Machine, p, resolved.Pin); err != nil {
			return err
		}
		if e.Pool, err = startPool(resolved, plan, p); err != nil {
			return err
		}
		e.done(StepPool, e.closePool)
		return nil
	})
	f.try(ctx, StepSolvers, func() (err error) {
		if !cfg.KeepEnvironment {
			e.Solvers, err = with.quiet()
		}
		return err
	})
	var notes []string
	f.try(ctx, StepNUMA, func() error {
		notes = e.notes(plan)
		return nil
	})
	if err := agree(e.World, f); err != nil {
		return err
	}

	f.try(ctx, StepWorkspaces, func() error {
		if cfg.Workspace == nil {
			return nil
		}
		return e.makeWorkspaces(cfg.Workspace)
	})
	if err := agree(e.World, f); err != nil {
		return err
	}

	all := make([]share, e.World.Size())
	mine := share{Threads: resolved.Threads, Crowding: plan.Crowding, Partly: p.partly && plan.Policy != topo.None}
	if err := cohort.Allgather(e.World, []share{mine}, all); err != nil {
		return &StepError{Step: StepSummary, Rank: cohort.Undefined, Err: err}
	}
	f.try(ctx, StepSummary, func() error {
		e.summarize(plan, all, notes)
		if cfg.Summary == nil || e.World.Rank() != 0 {
			return nil
		}
		_, err := fmt.Fprintln(cfg.Summary, e.Summary)
		return err
	})
	return agree(e.World, f)
}

// joinNode makes the node's communicator and finds the rank's place on the node.
func (e *Env) joinNode(threads int) (place, error) {
	node, err := e.World.SplitShared()
	if err != nil {
		return place{}, err
	}
	e.Node = node
	e.done(StepNode, node.Close)
	p, err := findPlace(node, e.Machine.CPUs, threads)
	e.LocalRank, e.LocalSize = p.rank, p.size
	return p, err
}
