package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// TestErrorOfLowestTaskIsReturned has all workers fail at the same time. The error is that of the
// lowest index, and no later task begins.
func TestErrorOfLowestTaskIsReturned(t *testing.T) {
	for name, call := range callers {
		t.Run(name, func(t *testing.T) {
			const workers = 4
			p := open(t, Config{Threads: workers})
			for _, n := range []int{workers, 100, 100000} {
				boom := errors.New("boom")
				var all sync.WaitGroup
				all.Add(workers)
				var ran atomic.Int64
				lowest := make([]int, workers)
				err := call(p, func() error {
					return ForEach(p, n, func(w, i int) error {
						ran.Add(1)
						lowest[w] = i
						all.Done() // panics if a worker comes twice
						all.Wait()
						return boom
					})
				})
				var e *TaskError
				if !errors.As(err, &e) || !errors.Is(err, boom) || e.Stack != nil {
					t.Fatalf("%d tasks: %v", n, err)
				}
				if want := slices.Min(lowest); e.Index != want || lowest[e.Worker] != want || ran.Load() != workers {
					t.Fatalf("%d tasks: %v after %d tasks; the workers failed in %v", n, err, ran.Load(), lowest)
				}
				if !contains(err, fmt.Sprintf("task %d on worker %d: boom", e.Index, e.Worker)) {
					t.Error(err)
				}
			}
			if err := ForEach(p, 100, func(int, int) error { return nil }); err != nil {
				t.Errorf("the next loop: %v", err)
			}
		})
	}
}

func TestPanicBecomesError(t *testing.T) {
	for name, call := range callers {
		t.Run(name, func(t *testing.T) {
			p := open(t, Config{Threads: 2})
			boom := errors.New("boom")
			for _, value := range []any{boom, "text", 17, nil} {
				err := call(p, func() error {
					return ForEach(p, 10, func(_, i int) error {
						if i == 7 {
							panicWith(value)
						}
						return nil
					})
				})
				var e *TaskError
				var v *PanicError
				if !errors.As(err, &e) || e.Index != 7 || !errors.As(err, &v) || !strings.Contains(string(e.Stack), "panicWith") {
					t.Fatalf("%v", err)
				}
				if _, isNil := v.Value.(*runtime.PanicNilError); value != v.Value && !(value == nil && isNil) {
					t.Errorf("the panic's value is %v, want %v", v.Value, value)
				}
				if errors.Is(err, boom) != (value == boom) {
					t.Errorf("panic(%v): %v", value, err)
				}
			}
			// Other goroutines replace those that tasks end, as t.FailNow does.
			for i := range 10 {
				err := call(p, func() error {
					return ForEach(p, 2, func(int, int) error { runtime.Goexit(); return nil })
				})
				var e *TaskError
				if !errors.As(err, &e) || !errors.Is(err, errGoexit) {
					t.Fatalf("Goexit: %v", err)
				}
				if err := ForEach(p, 2, func(int, int) error { return nil }); err != nil {
					t.Fatalf("after %d of them: %v", i, err)
				}
			}
		})
	}
}

func panicWith(v any) { panic(v) }

// TestContextEndsLoop cancels loops before they start, while tasks run, while the loop waits for
// another, and after the last task.
func TestContextEndsLoop(t *testing.T) {
	for name, call := range callers {
		t.Run(name, func(t *testing.T) {
			p := open(t, Config{Threads: 2})
			reason := errors.New("reason")
			ctx, cancel := context.WithCancelCause(context.Background())
			var ran atomic.Int64
			err := call(p, func() error {
				return ForEachContext(ctx, p, 1000, func(int, int) error {
					ran.Add(1)
					cancel(reason)
					<-ctx.Done()
					return nil
				})
			})
			if !errors.Is(err, backend.ErrCanceled) || !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
				t.Errorf("canceled: %v", err)
			}
			// The other worker may have begun a task before the context ended.
			if n := ran.Load(); n != 1 && n != 2 {
				t.Errorf("canceled: %d tasks ran", n)
			}
			ran.Store(0)
			err = call(p, func() error {
				return ForEachContext(ctx, p, 1000, func(int, int) error { ran.Add(1); return nil })
			})
			if !errors.Is(err, backend.ErrCanceled) || ran.Load() != 0 {
				t.Errorf("canceled before: %v after %d tasks", err, ran.Load())
			}

			deadline, cancelDeadline := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancelDeadline()
			err = call(p, func() error {
				return ForEachContext(deadline, p, 1000, func(int, int) error { <-deadline.Done(); return nil })
			})
			if !errors.Is(err, backend.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("deadline: %v", err)
			}

			late, cancelLate := context.WithCancel(context.Background())
			err = call(p, func() error {
				return ForEachContext(late, p, 1, func(int, int) error { cancelLate(); return nil })
			})
			if err != nil {
				t.Errorf("canceled in the last task: %v", err)
			}

			boom := errors.New("boom")
			both, cancelBoth := context.WithCancel(context.Background())
			err = call(p, func() error {
				return ForEachContext(both, p, 2, func(int, int) error { cancelBoth(); return boom })
			})
			if !errors.Is(err, boom) {
				t.Errorf("a task's error and a canceled context: %v", err)
			}
		})
	}
	t.Run("turn", func(t *testing.T) {
		p := open(t, Config{Threads: 1})
		running, release := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			ForEach(p, 1, func(int, int) error { close(running); <-release; return nil })
		})
		<-running
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := ForEachContext(ctx, p, 1, func(int, int) error { return errors.New("ran") }); !errors.Is(err, backend.ErrTimeout) {
			t.Errorf("waiting for another loop: %v", err)
		}
		close(release)
		wg.Wait()
	})
}
