package sddp

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/pool"
)

// crew are the workers of a rank. What it computes does not depend on how many they are: tasks share
// nothing that they write, and every result has its place.
type crew struct {
	env *hybrid.Env
	own bool // it was started for this, and is to be closed
	// inline: the calling goroutine is the only worker. leads: loops are called by worker 0, and not
	// by a goroutine beside the workers (docs/adr/0011-pool-callers.md).
	inline, leads bool
}

// newCrew returns the workers of env, or starts some if it is nil.
//
// Collective: all ranks of world call it, and an error is one of all.
func newCrew(world *cohort.Comm, threads int, pin string, env *hybrid.Env) (*crew, error) {
	w := &crew{env: env}
	if env == nil {
		var err error
		// The variables of solver libraries are the program's to set.
		w.env, err = hybrid.Join(world, &hybrid.Config{Threads: threads, Pin: pool.Policy(pin), KeepEnvironment: true})
		if err != nil {
			return nil, err
		}
		w.own = true
	}
	w.inline = w.threads() == 1 && w.env.Summary.Policy.String() == string(pool.None)
	// A library of MPI that only one thread may call is to be called by that which has joined the job.
	level := world.Caps().ThreadLevel
	w.leads = !w.inline && level != "single" && level != "funneled"
	return w, nil
}

// close ends the workers that were started.
func (w *crew) close() error {
	if !w.own {
		return nil
	}
	return w.env.Close()
}

// threads returns the number of workers.
func (w *crew) threads() int { return w.env.Pool.Workers() }

// run runs f, which calls each again and again.
func (w *crew) run(f func() error) error {
	if !w.leads {
		return f()
	}
	return plainTask(w.env.Pool.Run(f))
}

// each calls f for all i below n, spread over the workers. If some fail, the error is that of the
// lowest of those that did; no others begin then.
func (w *crew) each(n int, f func(worker, i int) error) error {
	if !w.inline {
		return plainTask(pool.ForEach(w.env.Pool, n, f))
	}
	for i := range n {
		if err := f(0, i); err != nil {
			return err
		}
	}
	return nil
}

// forWorkers makes something for each worker, on its thread.
func forWorkers[T any](w *crew, make func() (T, error)) ([]T, error) {
	if w.inline {
		one, err := make()
		return []T{one}, err
	}
	made, err := pool.NewLocals(w.env.Pool, func(int) (T, error) { return make() })
	if err != nil {
		return nil, plainTask(err)
	}
	var all []T
	for _, one := range made.All() {
		all = append(all, one)
	}
	return all, nil
}

// plainTask returns the error of a task as the task gave it: which worker had it says nothing. A
// panic keeps its stack.
func plainTask(err error) error {
	var task *pool.TaskError
	switch {
	case !errors.As(err, &task):
		return err
	case task.Stack != nil:
		return fmt.Errorf("%w\n%s", task.Err, task.Stack)
	}
	return task.Err
}
