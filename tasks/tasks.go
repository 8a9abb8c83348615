package tasks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
)

// Error is the failure of one task.
type Error struct {
	Index int // of the task in the sequence, from 0
	Rank  int // that ran the task
	Err   error
	Stack []byte // of a panic, or nil
}

// Error names the task and the rank. It does not include the stack.
func (e *Error) Error() string {
	return fmt.Sprintf("task %d on rank %d: %v", e.Index, e.Rank, e.Err)
}

// Unwrap returns the error of the function. If another rank ran the task, only its text is left.
func (e *Error) Unwrap() error { return e.Err }

// panicked is the error of a task that panicked.
type panicked struct {
	text  string
	stack []byte
}

func (p *panicked) Error() string { return "panic: " + p.text }

// stackOf returns the stack of a task that panicked, and nil for another error.
func stackOf(err error) []byte {
	if p, ok := err.(*panicked); ok {
		return p.stack
	}
	return nil
}

// Map runs do for each task and yields the results on rank 0 in the order of the tasks. Only rank 0
// reads tasks, in another goroutine if c has several ranks. A loop that ends early does not wait for this
// goroutine, which ends when tasks next yields.
//
// Collective: all ranks of c loop over the result. The ranks other than 0 leave the loop when rank 0 does. A task must
// not use c for collective operations, such as another Map: ranks that run no task would never take part.
//
// The context that do gets ends when ctx ends on rank 0 or on the rank of the task. It also ends when the
// body on rank 0 leaves the loop. The loop then waits until every running do has returned.
//
// Errors: [*Error] for a task that failed, after which the loop continues; an error if tasks is nil or panics on
// rank 0; ctx's cause when ctx ends on rank 0; [cohort.ErrPeerLost] if rank 0 or all other ranks are
// lost; those of [cohort.Comm.Dup], [cohort.Send] and [cohort.Comm.Shrink].
//
// Deadline: that of c for each message. A rank that waits for its next task waits for rank 0, so c
// should have none. A rank whose deadline passes leaves the loop with [cohort.ErrTimeout], and the
// others continue as after a loss. If it is rank 0, or on mpi, where no rank continues after a loss, the loop ends on
// all ranks, with [cohort.ErrPeerLost] on the others.
func Map[In, Out any](ctx context.Context, c *cohort.Comm, tasks iter.Seq[In],
	do func(context.Context, In) (Out, error)) iter.Seq2[Out, error] {
	return run(ctx, c, tasks, do, true)
}

// MapUnordered is [Map], but yields each result as soon as it has arrived.
func MapUnordered[In, Out any](ctx context.Context, c *cohort.Comm, tasks iter.Seq[In],
	do func(context.Context, In) (Out, error)) iter.Seq2[Out, error] {
	return run(ctx, c, tasks, do, false)
}

func run[In, Out any](ctx context.Context, c *cohort.Comm, tasks iter.Seq[In],
	do func(context.Context, In) (Out, error), ordered bool) iter.Seq2[Out, error] {
	if ctx == nil {
		ctx = context.Background()
	}
	return func(yield func(Out, error) bool) {
		var none Out
		d, err := c.Dup()
		if err != nil {
			yield(none, err)
			return
		}
		safe := func(ctx context.Context, in In) (out Out, err error) {
			defer func() {
				if p := recover(); p != nil {
					err = &panicked{fmt.Sprint(p), debug.Stack()}
				}
			}()
			out, err = do(ctx, in)
			return out, backend.Harmless(err)
		}
		d = (*cohort.Comm)((*comm.Comm)(d).Ending())
		switch {
		case d.Size() == 1:
			defer d.Close() // also if the loop's body panics
			err = alone(ctx, tasks, safe, yield)
		case d.Rank() == 0:
			err = lead(ctx, d, tasks, ordered, yield)
		default:
			err = serve(ctx, d, safe)
		}
		if err != nil {
			yield(none, err)
		}
	}
}

var errNoTasks = errors.New("tasks: the sequence of tasks is nil")

// alone runs all tasks on this rank.
func alone[In, Out any](ctx context.Context, tasks iter.Seq[In], do func(context.Context, In) (Out, error), yield func(Out, error) bool) (err error) {
	if tasks == nil {
		return errNoTasks
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inSequence := true // not in a task or the body of the loop
	defer func() {
		if inSequence {
			if p := recover(); p != nil {
				err = panickedSequence(p)
			}
		}
	}()
	i := 0
	for in := range tasks {
		inSequence = false
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out, err := do(ctx, in)
		if err != nil {
			var none Out // as from another rank
			out, err = none, &Error{Index: i, Err: err, Stack: stackOf(err)}
		}
		if !yield(out, err) {
			return nil
		}
		i++
		inSequence = true
	}
	return nil
}
