package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
)

// TaskError reports which task failed, on which worker, and with which error.
type TaskError struct {
	// Index is the index of the task, or -1 for a function that runs once on each worker.
	Index int
	// Worker is the worker that ran the task.
	Worker int
	// Err is the error that the task returned, or a *PanicError.
	Err error
	// Stack is the stack of a panic, or nil for an error.
	Stack []byte
}

// Error names the task and the worker. It does not include the stack.
func (e *TaskError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("worker %d: %v", e.Worker, e.Err)
	}
	return fmt.Sprintf("task %d on worker %d: %v", e.Index, e.Worker, e.Err)
}

// Unwrap returns Err.
func (e *TaskError) Unwrap() error { return e.Err }

// PanicError is the Err of a task that panicked.
type PanicError struct {
	Value any // the argument of panic
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the Err of a task that ended its goroutine, as testing.T.FailNow does. The worker
// continues with a new goroutine.
var errGoexit = errors.New("the task called runtime.Goexit")

// fault wraps a sentinel without repeating it in the text.
type fault struct {
	sentinel error
	text     string
}

func (f *fault) Error() string { return "pool: " + f.text }
func (f *fault) Unwrap() error { return f.sentinel }

func faultf(sentinel error, format string, args ...any) error {
	return &fault{sentinel, fmt.Sprintf(format, args...)}
}

var errClosed = faultf(backend.ErrClosed, "the pool is closed")

// ended returns the error of a loop whose context ended.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	sentinel := backend.ErrCanceled
	if errors.Is(err, context.DeadlineExceeded) {
		sentinel = backend.ErrTimeout
	}
	if cause != err {
		return fmt.Errorf("pool: %w: %w (%w)", sentinel, cause, err)
	}
	return fmt.Errorf("pool: %w: %w", sentinel, err)
}
