package hybrid

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// Env is the result of all steps on a rank. Its fields must not be changed. Many
// goroutines can read them at once.
type Env struct {
	World *cohort.Comm // all ranks
	Node  *cohort.Comm // those of this node
	Pool  *pool.Pool   // this rank's workers

	Topology cohort.Topology // where the ranks run, and what carries their messages
	Machine  *topo.Node      // what this node offers to this process
	// LocalRank is the rank's number among the LocalSize ranks of its node that may use
	// the same processors. The other ranks of the node use other processors.
	LocalRank, LocalSize int

	// Solvers are the variables of solver libraries and their values. It is nil with
	// Config.KeepEnvironment.
	Solvers []pool.Setting

	// Workspaces are the values that Config.Workspace returned. It is nil without one.
	Workspaces *pool.Locals[any]

	// Summary holds the parts of the line that is written to Config.Summary. Only rank 0's
	// contains the processors of its threads.
	Summary topo.Summary

	closing sync.Mutex // held by Close, which waits for tasks of the pool: nobody waits for it
	undo    []undo     // the steps that Close undoes, from the last to the first
}

// undo undoes a step.
type undo struct {
	step string
	f    func() error
}

// done registers the function that undoes a step.
func (e *Env) done(step string, f func() error) { e.undo = append(e.undo, undo{step, f}) }

// Close undoes all steps, the last one first. It closes the workspaces on their workers, ends
// the workers, and closes the communicators, including the world if Start made it. It continues
// after an error. Environment variables keep the values that were set. A second Close does
// nothing.
//
// Not collective. Operations of other ranks that still need this rank fail afterwards.
//
// Errors: those of all steps, joined; [cohort.ErrBusy] in a task of the pool and inside Pool.Run,
// where Close stops and can be called again later; ErrBusy also while another goroutine is in Close.
func (e *Env) Close() error {
	if e == nil {
		return nil
	}
	if !e.closing.TryLock() {
		return fmt.Errorf("hybrid: close: another goroutine is closing it: %w", cohort.ErrBusy)
	}
	defer e.closing.Unlock()
	var errs []error
	for len(e.undo) > 0 {
		last := e.undo[len(e.undo)-1]
		err := last.f()
		if err != nil {
			errs = append(errs, fmt.Errorf("hybrid: close: %s: %w", last.step, err))
		}
		var busy *busyError
		if errors.As(err, &busy) {
			break
		}
		e.undo = e.undo[:len(e.undo)-1]
	}
	return errors.Join(errs...)
}

// busyError is the error of closing a pool from one of its tasks.
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

// makeWorkspaces makes each worker's workspace on that worker.
func (e *Env) makeWorkspaces(workspace func(worker int) (any, error)) error {
	all, err := pool.NewLocals(e.Pool, workspace)
	if err != nil {
		return err
	}
	e.Workspaces = all
	e.done(StepWorkspaces, e.closeWorkspaces)
	return nil
}

// closeWorkspaces closes each workspace on its worker, because some libraries keep state per
// thread.
func (e *Env) closeWorkspaces() error {
	errs := make([]error, e.Pool.Workers())
	closing := func(worker int) error {
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = errors.New("Close " + backend.Panicked(p))
			}
			if err != nil {
				errs[worker] = fmt.Errorf("worker %d: %w", worker, err)
			}
		}()
		if c, ok := e.Workspaces.At(worker).(io.Closer); ok {
			err = backend.Harmless(c.Close())
		}
		return nil
	}
	err := pool.ForEachWorker(e.Pool, closing)
	switch {
	case errors.Is(err, cohort.ErrBusy):
		return &busyError{err}
	case errors.Is(err, cohort.ErrClosed): // the program has already closed the pool
		err = nil
		for worker := range errs {
			err = errors.Join(err, closing(worker))
		}
	}
	return errors.Join(append(errs, err)...)
}
