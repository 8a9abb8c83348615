package pool

import (
	"context"
	"reflect"
	"runtime/debug"

	"github.com/cohort-hpc/cohort/backend"
)

// ForEach calls f for every index from 0 to n-1, spread over the workers, and returns when all
// calls are done. The package documentation describes the order of tasks, nested loops and errors.
//
// It does not allocate unless a task fails.
func ForEach(p *Pool, n int, f func(worker, i int) error) error {
	return p.do(context.Background(), n, f, loopAny)
}

// ForEachContext is ForEach until ctx ends. After that no more tasks begin. If some have not begun,
// it waits for the running ones and returns ErrCanceled or ErrTimeout, with the context's error and
// cause. It also ends the wait for other loops.
func ForEachContext(ctx context.Context, p *Pool, n int, f func(worker, i int) error) error {
	return p.do(ctx, n, f, loopAny)
}

// Map is ForEach with results: element i is the result of f for index i. The slice is nil if a task
// failed, and the error is ErrAlloc for more results than a process can address.
func Map[T any](p *Pool, n int, f func(worker, i int) (T, error)) ([]T, error) {
	results, err := allocate[T](max(n, 0))
	if err != nil {
		return nil, err
	}
	err = ForEach(p, n, func(worker, i int) (err error) {
		results[i], err = f(worker, i)
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// allocate returns n zeros, or an error where make would panic.
func allocate[T any](n int) (s []T, err error) {
	defer func() {
		if recover() != nil {
			err = faultf(backend.ErrAlloc, "%d results of %s exceed what a process can address", n, reflect.TypeFor[T]())
		}
	}()
	return make([]T, n), nil
}

// ForEachWorker calls f once on every worker, concurrently. It returns ErrBusy if called in a task
// of the pool.
func ForEachWorker(p *Pool, f func(worker int) error) error {
	return p.do(context.Background(), p.Workers(), func(worker, _ int) error { return f(worker) }, loopEach)
}

// do runs a loop of n tasks, of kind loopAny or loopEach.
func (p *Pool) do(ctx context.Context, n int, f task, kind uint64) error {
	if n < 0 {
		return faultf(backend.ErrCount, "%d tasks; want 0 or more", n)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	w, err := p.enter(ctx)
	switch {
	case err != nil:
		return err
	case w != nil && w.leads:
		return w.team(ctx, n, f, kind)
	case w != nil && kind == loopEach:
		return faultf(backend.ErrBusy, "a task of the pool cannot run a function on every worker")
	case w != nil:
		return w.inline(ctx, n, f)
	}
	if n > 0 {
		p.begin()
		err = p.spread(ctx, n, f, kind)
	}
	p.turn <- struct{}{}
	return err
}

// spread runs a loop for a caller that is not a worker.
func (p *Pool) spread(ctx context.Context, n int, f task, kind uint64) error {
	p.await(p.publish(ctx, n, f, kind))
	return p.outcome(ctx)
}

// outcome returns the error of a loop that has ended, and clears its state.
func (p *Pool) outcome(ctx context.Context) error {
	p.run, p.ctx = nil, nil // they may keep much memory alive
	if p.stop.Load() == 0 {
		return nil
	}
	var first *TaskError
	skipped := p.skipped.Swap(false)
	for _, w := range p.workers {
		if f := w.failure; f != nil && (first == nil || f.Index < first.Index) {
			first = f
		}
		w.failure = nil
	}
	switch {
	case first != nil:
		return first
	case skipped:
		return ended(ctx)
	}
	return nil
}

// inline runs a loop called inside a task of the pool, on the task's worker.
func (w *worker) inline(ctx context.Context, n int, f task) error {
	for i := range n {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if err := w.guard(i, f); err != nil {
			return err
		}
	}
	return nil
}

// guard runs one task and returns its error or panic. Goexit also ends the enclosing task.
func (w *worker) guard(i int, f task) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &TaskError{Index: i, Worker: w.id, Err: &PanicError{v}, Stack: debug.Stack()}
		}
	}()
	if e := f(w.id, i); e != nil {
		return &TaskError{Index: i, Worker: w.id, Err: e}
	}
	return nil
}
