package sddp

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/pool"
)

// crew is the set of workers of a rank. Results do not depend on the number of workers: no two tasks
// write to the same memory, and every result has its own place.
type crew struct {
	env *hybrid.Env
	own bool // newCrew started env, so close closes it
	// inline: the calling goroutine is the only worker. leads: worker 0 starts loops, not a goroutine
	// outside the pool (docs/adr/0011-pool-callers.md).
	inline, leads bool
}

// newCrew returns the workers of env, or starts workers if env is nil.
//
// Collective: all ranks of world call it. If one rank fails, all return an error.
func newCrew(world *cohort.Comm, threads int, pin string, env *hybrid.Env) (*crew, error) {
	w := &crew{env: env}
	if env == nil {
		var err error
		// Only the program may set the variables of solver libraries.
		w.env, err = hybrid.Join(world, &hybrid.Config{Threads: threads, Pin: pool.Pinning(pin), KeepEnvironment: true})
		if err != nil {
			return nil, err
		}
		w.own = true
	}
	w.inline = w.threads() == 1 && w.env.Summary.Policy.String() == string(pool.None)
	// Where only one thread may call the MPI library, it is the thread that joined the job.
	level := world.Caps().ThreadLevel
	w.leads = !w.inline && level != "single" && level != "funneled"
	return w, nil
}

// close stops the workers that newCrew started.
func (w *crew) close() error {
	if !w.own {
		return nil
	}
	return w.env.Close()
}

// threads returns the number of workers.
func (w *crew) threads() int { return w.env.Pool.Workers() }

// run runs f, which calls each repeatedly.
func (w *crew) run(f func() error) error {
	if !w.leads {
		return f()
	}
	return plainTask(w.env.Pool.Run(f))
}

// each calls f for all i below n, spread over the workers. After a failure no further calls begin, and
// the error is that of the lowest i that failed.
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

// forWorkers calls make for each worker, on the worker's thread.
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

// plainTask returns the error that a task returned, without the worker's number. A panic keeps its
// stack.
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
