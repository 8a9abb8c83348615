package pool

import (
	"io"
	"iter"
	"slices"
)

// Locals are values of which every worker has one: a solver with its memory, a
// generator of random numbers, a sum. A task uses that of its own worker, and
// no other goroutine does at that time.
type Locals[T any] struct{ values []T }

// NewLocals makes the values, each on its worker's thread: memory that make is
// the first to write is of the NUMA domain in which the worker runs, and a library
// that keeps something for each thread finds it again.
//
// If make fails for a worker, NewLocals returns the TaskError and closes the
// values that were made, if they can be (io.Closer). In a task of the pool it is
// ErrBusy.
func NewLocals[T any](p *Pool, make func(worker int) (T, error)) (*Locals[T], error) {
	var l Locals[T]
	if p != nil {
		l.values = slices.Repeat([]T{*new(T)}, p.Workers())
	}
	made := slices.Repeat([]bool{false}, len(l.values))
	err := ForEachWorker(p, func(worker int) (err error) {
		l.values[worker], err = make(worker)
		made[worker] = err == nil
		return err
	})
	if err == nil {
		return &l, nil
	}
	for w, v := range l.values {
		if c, ok := any(v).(io.Closer); ok && made[w] {
			c.Close()
		}
	}
	return nil, err
}

// At returns the value of a worker.
func (l *Locals[T]) At(worker int) T { return l.values[worker] }

// All returns the values with their workers, in the order of the workers. Outside
// of loops they are the caller's: to add up, to close.
func (l *Locals[T]) All() iter.Seq2[int, T] { return slices.All(l.values) }
