package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// count yields the numbers below n.
func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

func square(_ context.Context, i int) (int, error) {
	if i%7 == 0 {
		time.Sleep(time.Duration(rand.N(2000)) * time.Microsecond) // on purpose: results come in another order
	}
	return i * i, nil
}

func ranks(t *testing.T, n int, body func(world *cohort.Comm) error) {
	t.Helper()
	if err := cohort.Run(t.Context(), n, must.Return(body)); err != nil {
		t.Error(err)
	}
}

func TestMapYieldsResultsInOrder(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		for _, tasks := range []int{0, 1, 2, 100} {
			ranks(t, n, func(world *cohort.Comm) error {
				var got []int
				for v, err := range Map(t.Context(), world, count(tasks), square) {
					if err != nil {
						return err
					}
					got = append(got, v)
				}
				if world.Rank() > 0 && got != nil {
					return fmt.Errorf("rank %d got %d results", world.Rank(), len(got))
				}
				if world.Rank() == 0 && !slices.EqualFunc(got, slices.Collect(count(tasks)), func(v, i int) bool { return v == i*i }) {
					return fmt.Errorf("%d ranks: got %v, want the squares below %d", n, got, tasks)
				}
				return world.Barrier() // the communicator stays usable
			})
		}
	}
}

func TestMapUnorderedYieldsEveryResultOnce(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		ranks(t, n, func(world *cohort.Comm) error {
			var got []int
			for v, err := range MapUnordered(t.Context(), world, count(200), square) {
				if err != nil {
					return err
				}
				got = append(got, v)
			}
			slices.Sort(got)
			if world.Rank() == 0 && !slices.EqualFunc(got, slices.Collect(count(200)), func(v, i int) bool { return v == i*i }) {
				return fmt.Errorf("got %v, want the squares below 200", got)
			}
			return nil
		})
	}
}

// One worker holds its task until all others are done: an unordered loop gets the others meanwhile.
func TestMapUnorderedDoesNotWaitForSlowTask(t *testing.T) {
	release := make(chan struct{})
	do := func(_ context.Context, i int) (int, error) {
		if i == 0 {
			<-release
		}
		return i, nil
	}
	ranks(t, 3, func(world *cohort.Comm) error {
		n, last := 0, -1
		for v, err := range MapUnordered(t.Context(), world, count(50), do) {
			if err != nil {
				return err
			}
			if n++; n == 49 {
				close(release)
			}
			last = v
		}
		if world.Rank() == 0 && (n != 50 || last != 0) {
			return fmt.Errorf("got %d results, the last of task %d; want 50 and the slow task 0", n, last)
		}
		return nil
	})
}

// nilError is an error whose Error method panics for a nil pointer.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestErrorsAndPanicsNameTheTask(t *testing.T) {
	for _, n := range []int{1, 4} {
		ranks(t, n, func(world *cohort.Comm) error {
			do := func(_ context.Context, i int) (int, error) {
				switch i {
				case 3:
					return i, errors.New("no threes")
				case 5:
					panic("no fives")
				case 6:
					var none *nilError
					return 0, none
				}
				return i, nil
			}
			i := 0
			for v, err := range Map(t.Context(), world, count(8), do) {
				text := map[int]string{3: "no threes", 5: "panic: no fives", 6: "an error of type *tasks.nilError panicked in "}[i]
				var e *Error
				switch {
				case text == "" && (err != nil || v != i):
					return fmt.Errorf("task %d: %d, %v", i, v, err)
				case text == "":
				case errors.As(err, &e) && (strings.Contains(err.Error(), "goroutine ") || bytes.Contains(e.Stack, []byte("tasks_test.go:")) != (i == 5)):
					return fmt.Errorf("task %d: %v with the stack %q, want the stack of a panic in Stack alone", i, err, e.Stack)
				case v != 0 || !errors.As(err, &e) || e.Index != i || n > 1 && e.Rank == 0 || !strings.Contains(err.Error(), text) ||
					!strings.HasPrefix(err.Error(), fmt.Sprintf("task %d on rank %d: ", i, e.Rank)):
					return fmt.Errorf("task %d: %d, %v, want 0 and an error that says %q", i, v, err, text)
				}
				i++
			}
			if world.Rank() == 0 && i != 8 {
				return fmt.Errorf("%d results, want 8", i)
			}
			return nil
		})
	}
}

func TestTasksWithoutResultsAreDone(t *testing.T) {
	for _, n := range []int{1, 3} {
		var sum atomic.Int32
		ranks(t, n, func(world *cohort.Comm) error {
			for _, err := range Map(t.Context(), world, count(10), func(_ context.Context, i int) (struct{}, error) {
				sum.Add(int32(i))
				return struct{}{}, nil
			}) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		if sum.Load() != 45 {
			t.Errorf("%d ranks: the tasks done have the sum %d, want 45", n, sum.Load())
		}
	}
}

func TestTaskThatCannotBeEncodedIsAnError(t *testing.T) {
	ranks(t, 2, func(world *cohort.Comm) error {
		for _, err := range Map(t.Context(), world, slices.Values([]func(){nil}), func(context.Context, func()) (int, error) { return 0, nil }) {
			var e *Error
			if !errors.As(err, &e) || e.Index != 0 || !errors.Is(err, cohort.ErrType) {
				return fmt.Errorf("%v, want an error of task 0", err)
			}
		}
		for _, err := range Map(t.Context(), world, count(1), func(context.Context, int) (chan int, error) { return make(chan int), nil }) {
			var e *Error
			if !errors.As(err, &e) || e.Index != 0 || e.Rank != 1 {
				return fmt.Errorf("%v, want an error of task 0 on rank 1", err)
			}
		}
		return nil
	})
}

// The sequence has no end: rank 0 takes no more tasks than it has room for.
func TestEndlessSequenceIsTakenAsNeeded(t *testing.T) {
	const n, stopAt = 3, 40
	var taken, yielded atomic.Int32
	endless := func(yield func(int) bool) {
		for i := 0; ; i++ {
			if d := taken.Add(1) - yielded.Load(); d > perWorker*(n-1)+2 {
				t.Errorf("%d tasks taken whose results were not yielded", d)
			}
			if !yield(i) {
				return
			}
		}
	}
	ranks(t, n, func(world *cohort.Comm) error {
		for v, err := range Map(t.Context(), world, endless, square) {
			if err != nil {
				return err
			}
			if yielded.Add(1); v == stopAt*stopAt {
				break
			}
		}
		return world.Barrier()
	})
	if got := yielded.Load(); got != stopAt+1 {
		t.Errorf("%d results, want %d", got, stopAt+1)
	}
}

// A loop that ends early, by a break or by its context, ends the context of the tasks under way.
func TestEndOfLoopEndsTasks(t *testing.T) {
	ended := errors.New("the user is tired")
	for _, how := range []string{"break", "context"} {
		t.Run(how, func(t *testing.T) {
			var canceled atomic.Int32
			begun := make(chan bool, 1000)
			ranks(t, 4, func(world *cohort.Comm) error {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				do := func(ctx context.Context, i int) (int, error) {
					if i == 0 {
						<-begun
						return i, nil
					}
					begun <- true
					<-ctx.Done()
					canceled.Add(1)
					return i, nil
				}
				var last error
				for v, err := range Map(ctx, world, count(1000), do) {
					if last = err; err == nil && v == 0 {
						if how == "break" {
							break
						}
						cancel(ended)
					}
				}
				if how == "context" && world.Rank() == 0 && !errors.Is(last, ended) {
					return fmt.Errorf("the loop ended with %v, want %v", last, ended)
				}
				return world.Barrier()
			})
			if canceled.Load() == 0 {
				t.Error("no task was canceled")
			}
		})
	}
}

func TestPanicInSequenceIsAnError(t *testing.T) {
	for _, n := range []int{1, 3} {
		ranks(t, n, func(world *cohort.Comm) error {
			var last error
			bad := func(yield func(int) bool) {
				yield(1)
				panic("no more")
			}
			for _, err := range Map(t.Context(), world, bad, square) {
				last = err
			}
			if world.Rank() == 0 && (last == nil || !strings.Contains(last.Error(), "the sequence of tasks has panicked: no more") ||
				!strings.Contains(last.Error(), "tasks_test.go:")) {
				return fmt.Errorf("got %v, want an error that says where", last)
			}
			return nil
		})
	}
}

// A sequence that ends its goroutine, like one that calls t.FailNow, has not come to its end.
func TestSequenceThatEndsItsGoroutineIsAnError(t *testing.T) {
	ranks(t, 3, func(world *cohort.Comm) error {
		var last error
		bad := func(yield func(int) bool) {
			yield(1)
			runtime.Goexit()
		}
		for _, err := range Map(t.Context(), world, bad, square) {
			last = err
		}
		if world.Rank() == 0 && (last == nil || !strings.Contains(last.Error(), "the sequence of tasks ended its goroutine")) {
			return fmt.Errorf("got %v", last)
		}
		return nil
	})
}

var errDies = errors.New("dies in the middle of a task")

// lose runs Map on n ranks, of which some die in their first task, and returns what rank 0 got.
func lose(t *testing.T, n, tasks int, dying ...int) (got []int, last error) {
	t.Helper()
	var others sync.WaitGroup
	err := cohort.Run(t.Context(), n, func(world *cohort.Comm) error {
		loop := func(do func(context.Context, int) (int, error)) (results []int, last error) {
			for v, err := range Map(t.Context(), world, count(tasks), do) {
				if err == nil {
					results = append(results, v)
				}
				last = err
			}
			return results, last
		}
		if slices.Contains(dying, world.Rank()) {
			dies := make(chan struct{}, tasks)
			others.Go(func() {
				loop(func(ctx context.Context, _ int) (int, error) {
					dies <- struct{}{}
					<-ctx.Done()
					return -1, nil
				})
			})
			<-dies
			return errDies
		}
		results, err := loop(square)
		if world.Rank() == 0 {
			got, last = results, err
		} else if err != nil && last == nil {
			return err
		}
		return nil
	})
	others.Wait()
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		if !errors.Is(err, errDies) {
			t.Error(err)
		}
	}
	return got, last
}

func TestTaskOfLostRankIsDoneByAnother(t *testing.T) {
	for _, c := range []struct {
		n     int
		dying []int
	}{{3, []int{2}}, {4, []int{1}}, {5, []int{1, 4}}, {8, []int{2, 3, 5, 7}}} {
		got, err := lose(t, c.n, 60, c.dying...)
		if err != nil || !slices.EqualFunc(got, slices.Collect(count(60)), func(v, i int) bool { return v == i*i }) {
			t.Errorf("%d ranks without %v: %v, %v; want the squares below 60", c.n, c.dying, got, err)
		}
	}
}

func TestLossOfAllWorkersIsAnError(t *testing.T) {
	if _, err := lose(t, 3, 10, 1, 2); !errors.Is(err, cohort.ErrPeerLost) {
		t.Errorf("%v, want %v", err, cohort.ErrPeerLost)
	}
}

func ExampleMap() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		words := slices.Values([]string{"as", "they", "come"})
		for out, err := range Map(context.Background(), world, words, func(_ context.Context, word string) (string, error) {
			return strings.ToUpper(word), nil
		}) {
			if err != nil {
				return err
			}
			fmt.Println(out) // on rank 0
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// AS
	// THEY
	// COME
}

func ExampleMapUnordered() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		sum := 0
		for v, err := range MapUnordered(context.Background(), world, count(10), square) {
			if err != nil {
				return err
			}
			sum += v
		}
		if world.Rank() == 0 {
			fmt.Println(sum)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 285
}

// A nil context is one that does not end, as in Init and Run.
func TestNilContextNeverEnds(t *testing.T) {
	for n := range 3 {
		ranks(t, n+1, func(world *cohort.Comm) error {
			results := 0
			var none context.Context
			for _, err := range Map(none, world, count(3), square) {
				if err != nil {
					return err
				}
				results++
			}
			if world.Rank() == 0 && results != 3 {
				return fmt.Errorf("%d results, want 3", results)
			}
			return nil
		})
	}
}
