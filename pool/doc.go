// Package pool provides the threads inside a rank: workers pinned to the rank's share of the node,
// and loops spread over them.
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
// Each of the W workers is a goroutine with its own thread, until the pool is closed. All tasks of
// worker w run on that thread, one at a time, so values that belong to a worker ([NewLocals]) need
// no lock. The goroutine that calls a loop only waits.
//
// An idle worker looks for work for some microseconds and then sleeps; an idle pool uses no
// processor time. The workers that are awake start a loop; others are woken if it does not end at
// once.
//
// # Loops
//
// A loop divides its indices between workers while it runs. Each worker begins with its own part,
// in chunks, and takes chunks of others when that is done. Tasks run in no particular order. The
// caller sees everything that tasks wrote when the loop returns.
//
// A loop called inside a task of the same pool runs on the task's worker, in the order of the
// indices. Loops called from several goroutines run one after the other. A task must not wait for a
// goroutine that calls a loop of the same pool: that is a deadlock.
//
// # Errors
//
// After the first task fails, by an error or a panic, no more tasks begin. When the running tasks
// are done, the loop returns the [TaskError] of the lowest index among those that failed. Other
// errors wrap the sentinels of package cohort: ErrInit (a wrong setting), ErrClosed, ErrCount,
// ErrBusy, ErrNotSupported, and ErrCanceled or ErrTimeout together with the context's error.
//
// # The rest of the program
//
// A worker occupies one of Go's processors (GOMAXPROCS) while it works. The first loop therefore
// raises GOMAXPROCS by the number of workers, so that other goroutines keep what they had, and
// [Pool.Close] lowers it again. Threads that Go starts later do not inherit a worker's pinning;
// processes that a task starts do.
package pool
