package pool

import (
	"errors"
	"io"
	"iter"
	"slices"
)

// Locals holds one value for each worker: a solver with its memory, a random number generator, a
// sum. A task uses the value of its worker, which no other goroutine uses at that time.
type Locals[T any] struct{ values []T }

// NewLocals calls newValue on each worker's thread. Memory that newValue writes first belongs to the NUMA
// domain of the worker, and a library that keeps state per thread finds it again.
//
// If newValue fails for a worker, NewLocals closes the other values that implement io.Closer, and
// returns the TaskErrors of both. It returns ErrBusy if called in a task of the pool.
func NewLocals[T any](p *Pool, newValue func(worker int) (T, error)) (*Locals[T], error) {
	l := Locals[T]{make([]T, p.Workers())}
	made := make([]bool, len(l.values))
	err := ForEachWorker(p, func(worker int) (err error) {
		l.values[worker], err = newValue(worker)
		made[worker] = err == nil
		return err
	})
	if err == nil {
		return &l, nil
	}
	for w, v := range l.values {
		if c, ok := any(v).(io.Closer); ok && made[w] {
			if failed := p.workers[w].guard(-1, func(int, int) error { return c.Close() }); failed != nil {
				err = errors.Join(err, failed)
			}
		}
	}
	return nil, err
}

// At returns the value of a worker.
func (l *Locals[T]) At(worker int) T { return l.all()[worker] }

// All returns the values in the order of the workers. Outside of loops the caller may use all of
// them, for example to sum or close them.
func (l *Locals[T]) All() iter.Seq2[int, T] { return slices.All(l.all()) }

// all returns the values. A nil Locals has none.
func (l *Locals[T]) all() []T {
	if l == nil {
		return nil
	}
	return l.values
}
