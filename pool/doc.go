// Package pool has the threads inside a rank: workers that are pinned to the
// rank's share of the node, and loops that are spread over them.
//
//	p, err := pool.New(pool.Config{Threads: 8, Pin: pool.Cores})
//	defer p.Close()
//	solvers, err := pool.NewLocals(p, func(worker int) (*Solver, error) { … })
//	err = pool.ForEach(p, len(cases), func(worker, i int) error {
//		return solvers.At(worker).Solve(cases[i])
//	})
//
// # Workers
//
// Worker w of W is a goroutine with a thread of its own for as long as the pool
// lives. All tasks with that number run on that thread, one at a time, so that
// what belongs to a worker ([NewLocals]) needs no lock. The goroutine that calls
// a loop takes no part in it: it waits.
//
// An idle worker looks for work for some microseconds and then sleeps; an idle
// pool takes no processor time. A short loop is done by the workers that are
// awake; others are woken when it turns out not to be over at once.
//
// # Loops
//
// Which worker does which index is decided while the loop runs: each begins with
// a part of its own, in chunks, and takes chunks of others when that is done.
// There is no order between tasks, and what one writes is seen by the caller
// when the loop returns.
//
// A loop called from inside a task of the same pool runs right there, on that
// worker, in the order of the indices. Loops called from several goroutines at
// once run one after the other. A task that starts a goroutine and waits for a
// loop of that one waits for itself.
//
// # Errors
//
// The first task that fails, by an error or a panic, keeps tasks that have not
// begun from beginning. The loop returns when those that had begun are over, with
// the [TaskError] of the lowest index among those that failed. Other errors wrap
// the sentinels of package cohort: ErrInit (a setting), ErrClosed, ErrCount,
// ErrBusy, ErrNotSupported, and ErrCanceled and ErrTimeout, with the context's
// own.
//
// # The rest of the program
//
// A worker takes up one of Go's processors (GOMAXPROCS) while it works. The first
// loop adds as many as there are workers, so that other goroutines have what they
// had before, and [Pool.Close] takes them away again. Threads that Go starts later
// do not inherit a worker's pinning; processes that a task starts do.
package pool
