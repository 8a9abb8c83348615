package hybrid

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// Env is what a rank has when all steps are done. Its fields are not to be changed,
// and can be read by many goroutines at once.
type Env struct {
	World *cohort.Comm // all ranks
	Node  *cohort.Comm // those of this node
	Pool  *pool.Pool   // this rank's workers

	Topology cohort.Topology // where the ranks run, and over what
	Machine  *topo.Node      // what this node has for this process
	// LocalRank is the rank's place among the LocalSize ranks of its node that have
	// the same processors; the others' are bound elsewhere.
	LocalRank, LocalSize int

	// Solvers are the variables of solver libraries and what they are now; nil with
	// Config.KeepEnvironment.
	Solvers []pool.Setting

	// Workspaces are what Config.Workspace made, nil without it.
	Workspaces *pool.Locals[any]

	// Summary is the line that Config.Summary gets, in its parts. The processors of
	// the threads are rank 0's, and in its own only.
	Summary topo.Summary

	mu   sync.Mutex
	undo []undo // what Close has to do, last first
}

// undo takes a step back.
type undo struct {
	step string
	f    func() error
}

// done notes how to take back a step that is done.
func (e *Env) done(step string, f func() error) { e.undo = append(e.undo, undo{step, f}) }

// Close takes all steps back, the last one first: it closes the workspaces on their
// workers, ends the workers, and closes the communicators, the world too if Start
// made it. What goes wrong does not keep it from the rest; the errors come joined.
// Variables that were set stay so. A second Close does nothing.
//
// In a task of the pool, and in what Pool.Run runs, it is ErrBusy: what is left can
// be closed later.
//
// Local, but what other ranks still want of this one fails afterwards.
func (e *Env) Close() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for len(e.undo) > 0 {
		last := e.undo[len(e.undo)-1]
		err := last.f()
		if err != nil {
			errs = append(errs, fmt.Errorf("hybrid: closing: %s: %w", last.step, err))
		}
		var busy *busyError
		if errors.As(err, &busy) {
			break
		}
		e.undo = e.undo[:len(e.undo)-1]
	}
	return errors.Join(errs...)
}

// busyError says that the caller is a task of the pool that it wants to close.
type busyError struct{ err error }

func (e *busyError) Error() string { return e.err.Error() }
func (e *busyError) Unwrap() error { return e.err }

// closePool ends the workers.
func (e *Env) closePool() error {
	err := e.Pool.Close()
	if errors.Is(err, cohort.ErrBusy) {
		return &busyError{err}
	}
	return err
}

// makeWorkspaces has each worker make its own.
func (e *Env) makeWorkspaces(workspace func(worker int) (any, error)) error {
	all, err := pool.NewLocals(e.Pool, workspace)
	if err != nil {
		return err
	}
	e.Workspaces = all
	e.done(StepWorkspaces, e.closeWorkspaces)
	return nil
}

// closeWorkspaces closes each on its worker: some libraries keep what belongs to a
// thread.
func (e *Env) closeWorkspaces() error {
	errs := make([]error, e.Pool.Workers())
	closing := func(worker int) error {
		if c, ok := e.Workspaces.At(worker).(io.Closer); ok {
			if err := c.Close(); err != nil {
				errs[worker] = fmt.Errorf("worker %d: %w", worker, err)
			}
		}
		return nil
	}
	err := pool.ForEachWorker(e.Pool, closing)
	switch {
	case errors.Is(err, cohort.ErrBusy):
		return &busyError{err}
	case errors.Is(err, cohort.ErrClosed): // the program has closed the pool itself
		err = nil
		for worker := range errs {
			err = errors.Join(err, closing(worker))
		}
	}
	return errors.Join(append(errs, err)...)
}
