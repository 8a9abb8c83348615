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

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func contains(err error, s string) bool { return strings.Contains(err.Error(), s) }

// callers call a function with loops as both kinds of caller.
var callers = map[string]func(p *Pool, f func() error) error{
	"outside": func(_ *Pool, f func() error) error { return f() },
	"in Run":  (*Pool).Run,
}

// TestForEachRunsEveryTaskOnce checks that every task runs once, on a worker that runs no other
// task at that time, for lengths around those where the division changes.
func TestForEachRunsEveryTaskOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		for name, call := range callers {
			t.Run(fmt.Sprintf("%d workers %s", workers, name), func(t *testing.T) {
				p := open(t, Config{Threads: workers})
				for _, n := range []int{0, 1, 2, 3, 7, 8, 9, perWorker*workers - 1, perWorker * workers, perWorker*workers + 1, 2*perWorker*workers + 3, 70001} {
					count := make([]int32, n)
					busy := make([]int32, workers)
					err := call(p, func() error {
						return ForEach(p, n, func(w, i int) error {
							if busy[w]++; busy[w] != 1 { // no atomic: the race detector is to see it
								return errors.New("another task runs on this worker")
							}
							count[i]++
							busy[w]--
							return nil
						})
					})
					if err != nil {
						t.Fatalf("%d tasks: %v", n, err)
					}
					if i := slices.IndexFunc(count, func(c int32) bool { return c != 1 }); i >= 0 {
						t.Fatalf("%d tasks: task %d ran %d times", n, i, count[i])
					}
				}
			})
		}
	}
	p := open(t, Config{Threads: 2})
	if err := ForEach(p, -1, func(int, int) error { return nil }); !errors.Is(err, backend.ErrCount) {
		t.Errorf("-1 tasks: %v", err)
	}
	if _, err := Map(p, -1, func(int, int) (int, error) { return 0, nil }); !errors.Is(err, backend.ErrCount) {
		t.Errorf("Map of -1: %v", err)
	}
}

// TestTasksRunInParallel needs all workers at the same time: each task waits for the others.
func TestTasksRunInParallel(t *testing.T) {
	for name, call := range callers {
		t.Run(name, func(t *testing.T) {
			const workers = 5
			p := open(t, Config{Threads: workers})
			for range 20 {
				if err := call(p, func() error {
					var all sync.WaitGroup
					all.Add(workers)
					return ForEach(p, workers, func(int, int) error {
						all.Done()
						all.Wait()
						return nil
					})
				}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestIdleWorkersStealTasks blocks one worker in its first task until others have done all other
// tasks, including that worker's part.
func TestIdleWorkersStealTasks(t *testing.T) {
	p := open(t, Config{Threads: 2})
	for _, n := range []int{2, 10, 1000} { // in chunks of one and of several
		chunks := min(n, 2*perWorker)
		var rest atomic.Int64
		rest.Store(int64(n - (n+chunks-1)/chunks)) // all but the first chunk, whose task waits
		if err := ForEach(p, n, func(_, i int) error {
			if i == 0 {
				for rest.Load() > 0 {
					runtime.Gosched()
				}
				return nil
			}
			rest.Add(-1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMapReturnsResultsInOrder(t *testing.T) {
	p := open(t, Config{Threads: 3})
	got, err := Map(p, 1000, func(_, i int) (int, error) { return i * i, nil })
	if err != nil || len(got) != 1000 {
		t.Fatal(len(got), err)
	}
	for i, v := range got {
		if v != i*i {
			t.Fatalf("result %d is %d", i, v)
		}
	}
	boom := errors.New("boom")
	got, err = Map(p, 10, func(_, i int) (int, error) {
		if i == 4 {
			return 1, boom
		}
		return 1, nil
	})
	if got != nil || !errors.Is(err, boom) {
		t.Errorf("got %v and %v", got, err)
	}
}

// TestNestedLoopsRunInOrder checks that loops in tasks run there, in order, and checks their
// errors.
func TestNestedLoopsRunInOrder(t *testing.T) {
	p := open(t, Config{Threads: 2})
	boom := errors.New("boom")
	got, err := Map(p, 8, func(w, i int) ([]int, error) {
		var order []int
		err := ForEach(p, 5, func(worker, j int) error {
			if worker != w {
				return fmt.Errorf("on worker %d, the task outside on %d", worker, w)
			}
			return ForEach(p, 2, func(worker, k int) error {
				if worker != w {
					return fmt.Errorf("on worker %d, the task outside on %d", worker, w)
				}
				order = append(order, 10*j+k)
				return nil
			})
		})
		return order, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, order := range got {
		if !slices.Equal(order, []int{0, 1, 10, 11, 20, 21, 30, 31, 40, 41}) {
			t.Errorf("task %d: order %v", i, order)
		}
	}
	err = ForEach(p, 1, func(int, int) error {
		ran := 0
		err := ForEach(p, 5, func(_, i int) error {
			ran++
			if i == 2 {
				panic(boom)
			}
			return nil
		})
		if ran != 3 {
			t.Errorf("%d tasks ran, want 3", ran)
		}
		return err
	})
	var outer, inner *TaskError
	if !errors.As(err, &outer) || !errors.As(outer.Err, &inner) || outer.Index != 0 || inner.Index != 2 || !errors.Is(err, boom) {
		t.Errorf("a panic in a nested loop: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = ForEach(p, 1, func(int, int) error {
		return ForEachContext(ctx, p, 5, func(_, i int) error {
			if i == 3 {
				cancel()
			}
			if i > 3 {
				t.Error("a task begins after the context has ended")
			}
			return nil
		})
	})
	if !errors.Is(err, backend.ErrCanceled) {
		t.Errorf("a canceled nested loop: %v", err)
	}
	// Two pools know their own workers.
	q := open(t, Config{Threads: 2})
	var sum atomic.Int64
	err = ForEach(p, 4, func(int, int) error {
		return ForEach(q, 4, func(_, i int) error { sum.Add(int64(i)); return nil })
	})
	if err != nil || sum.Load() != 4*(0+1+2+3) {
		t.Errorf("a loop of another pool: %v, sum %d", err, sum.Load())
	}
}

// TestRunCallsOnWorkerZero checks that f of Run is worker 0, also in its loops.
func TestRunCallsOnWorkerZero(t *testing.T) {
	p := open(t, Config{Threads: 2})
	id := p.workers[0].identity.Load()
	err := p.Run(func() error {
		if int64(self()) != id {
			return errors.New("not on the thread of worker 0")
		}
		if _, err := NewLocals(p, func(int) (int, error) { return 0, nil }); err != nil {
			return err
		}
		if err := p.Close(); !errors.Is(err, backend.ErrBusy) {
			return fmt.Errorf("Close in Run: %v", err)
		}
		return p.Run(func() error {
			return ForEach(p, 2, func(int, int) error { return nil })
		})
	})
	if err != nil {
		t.Error(err)
	}
	boom := errors.New("boom")
	if err := p.Run(func() error { return boom }); err != boom {
		t.Errorf("got %v, want what the function returned", err)
	}
	var e *TaskError
	if err := p.Run(func() error { panic(boom) }); !errors.As(err, &e) || e.Index != -1 || !errors.Is(err, boom) {
		t.Errorf("a panic: %v", err)
	}
	if err := p.Run(func() error { runtime.Goexit(); return nil }); !errors.As(err, &e) || !errors.Is(err, errGoexit) {
		t.Errorf("Goexit: %v", err)
	}
	if err := p.Run(func() error { return nil }); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func TestLocalsArePerWorker(t *testing.T) {
	const workers = 3
	p := open(t, Config{Threads: workers})
	type local struct {
		on identity
		n  int
	}
	l := must.Get(NewLocals(p, func(w int) (*local, error) { return &local{on: self(), n: 100 * w}, nil }))
	err := ForEach(p, 1000, func(w, _ int) error {
		if l.At(w).on != self() {
			return errors.New("the worker's value was made on another thread")
		}
		l.At(w).n++ // no lock
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sum, next := 0, 0
	for w, v := range l.All() {
		if w != next {
			t.Errorf("value %d where that of worker %d should be", w, next)
		}
		next++
		sum += v.n
	}
	if sum != 1000+100*(0+1+2) || next != workers {
		t.Errorf("the sum of %d values is %d", next, sum)
	}

	boom := errors.New("boom")
	var made, closed atomic.Int32
	var all sync.WaitGroup
	all.Add(workers)
	_, err = NewLocals(p, func(w int) (*closer, error) {
		all.Done()
		all.Wait()
		if w == 1 {
			return nil, boom
		}
		made.Add(1)
		return &closer{&closed}, nil
	})
	var e *TaskError
	if !errors.As(err, &e) || e.Worker != 1 || e.Index != -1 || !errors.Is(err, boom) || !contains(err, "worker 1: boom") ||
		!contains(err, "worker 0: panic: in use") || !contains(err, "worker 2: panic: in use") {
		t.Errorf("an error in making: %v", err)
	}
	if made.Load() != workers-1 || closed.Load() != workers-1 {
		t.Errorf("%d made, %d closed", made.Load(), closed.Load())
	}
}

type closer struct{ closed *atomic.Int32 }

func (c *closer) Close() error { c.closed.Add(1); panic("in use") }

// TestLoopsDoNotAllocate covers workers that are awake and workers that sleep.
func TestLoopsDoNotAllocate(t *testing.T) {
	p := open(t, Config{Threads: 2})
	var sum [2]int
	f := func(w, i int) error { sum[w] += i; return nil }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	nested := func(int, int) error { return ForEach(p, 2, f) }
	for name, loop := range map[string]func(){
		"awake":  func() { ForEach(p, 2, f) },
		"asleep": func() { soon(func() bool { return p.asleep.Load() == 2 }); ForEach(p, 2, f) },
		"long":   func() { ForEach(p, 3000, f) },
		"nested": func() { ForEach(p, 1, nested) },
		"ctx":    func() { ForEachContext(ctx, p, 100, f) },
	} {
		if n := testing.AllocsPerRun(100, loop); n != 0 {
			t.Errorf("%s: %v allocations per loop", name, n)
		}
	}
}
