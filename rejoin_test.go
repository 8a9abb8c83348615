package cohort_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// A failed rank is replaced, the others keep their numbers and their memory, and all get one world.
func TestRunReplacesFailedRank(t *testing.T) {
	var failed atomic.Int32
	err := cohort.RunWith(context.Background(), 4, cohort.RunOptions{Restarts: 2}, func(world *cohort.Comm) error {
		kept := 10 * world.Rank()
		for {
			g := world.Generation()
			ranks := make([]int, 4)
			if err := cohort.Allgather(world, []int{world.Rank()}, ranks); err == nil && !slices.Equal(ranks, []int{0, 1, 2, 3}) {
				return fmt.Errorf("generation %d has the ranks %v", g, ranks)
			}
			if g == 2 {
				if kept != 10*world.Rank() {
					return fmt.Errorf("rank %d has the memory of rank %d", world.Rank(), kept/10)
				}
				return world.Barrier()
			}
			if world.Rank() == 2*g { // 0 in generation 0, and 2 in generation 1
				failed.Add(1)
				return errors.New("on purpose")
			}
			err := world.Barrier()
			if !errors.Is(err, cohort.ErrPeerLost) {
				return fmt.Errorf("rank %d, generation %d: the barrier returned %v", world.Rank(), g, err)
			}
			next, err := cohort.Rejoin(context.Background(), world)
			if err != nil {
				return err
			}
			if err := world.Barrier(); !errors.Is(err, cohort.ErrClosed) {
				return fmt.Errorf("the old world is not closed: %v", err)
			}
			world = next
		}
	})
	if n := failed.Load(); err != nil || n != 2 {
		t.Fatalf("%d ranks failed, %v", n, err)
	}
}

// Without restarts, the survivors go on in their order, and Run returns the error of the lost one.
func TestRejoinOfSurvivors(t *testing.T) {
	lost := errors.New("on purpose")
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		old := world.Rank()
		if old == 1 {
			return lost
		}
		if err := world.Barrier(); !errors.Is(err, cohort.ErrPeerLost) {
			return fmt.Errorf("the barrier returned %v", err)
		}
		next, err := cohort.Rejoin(context.Background(), world)
		if err != nil {
			return err
		}
		if want := []int{0, -1, 1, 2}[old]; next.Rank() != want || next.Size() != 3 || next.Generation() != 1 {
			return fmt.Errorf("rank %d is rank %d of %d in generation %d", old, next.Rank(), next.Size(), next.Generation())
		}
		return next.Barrier()
	})
	if !errors.Is(err, lost) || errors.Is(err, cohort.ErrPeerLost) {
		t.Fatal(err)
	}
}

// A rank that does not call Rejoin is named at the deadline, the world can still be used, and a later Rejoin succeeds.
func TestRejoinNamesMissingRanks(t *testing.T) {
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		if world.Rank() != 1 {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			_, err := cohort.Rejoin(ctx, world)
			if !errors.Is(err, cohort.ErrTimeout) || !strings.Contains(err.Error(), "not there yet: rank") || !strings.Contains(err.Error(), "1") {
				return fmt.Errorf("rank %d: %v", world.Rank(), err)
			}
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		next, err := cohort.Rejoin(context.Background(), world)
		if err != nil {
			return err
		}
		return next.Barrier()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each new world is left at once, by one goroutine: no other one calls Rejoin.
func TestRejoinAgainAtOnce(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		for range 10000 {
			next, err := cohort.Rejoin(context.Background(), world)
			if err != nil {
				return err
			}
			world = next
		}
		return world.Barrier()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A Rejoin that fails leaves the world as it is, for the statistics too.
func TestStatsAfterRejoinThatFails(t *testing.T) {
	t.Setenv("COHORT_STATS", filepath.Join(t.TempDir(), "stats"))
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := cohort.Rejoin(ctx, world); !errors.Is(err, cohort.ErrCanceled) {
			return fmt.Errorf("Rejoin returned %v", err)
		}
		return world.Barrier()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The failure of a rank that was replaced is not returned, although the next world has other numbers.
func TestFailureOfReplacedRankIsForgotten(t *testing.T) {
	first, second := errors.New("of the rank that is replaced"), errors.New("of the rank for which no restart is left")
	replaced := make(chan bool)
	err := cohort.RunWith(context.Background(), 4, cohort.RunOptions{Restarts: 1}, func(world *cohort.Comm) error {
		if world.Generation() == 0 && world.Rank() == 3 {
			defer close(replaced)
			return first
		}
		if world.Generation() == 0 && world.Rank() == 1 {
			<-replaced
			for len(world.Lost()) == 0 {
				time.Sleep(time.Millisecond) // poll
			}
			return second
		}
		for {
			err := world.Barrier()
			if err == nil {
				return nil
			}
			if world, err = cohort.Rejoin(context.Background(), world); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, second) || errors.Is(err, first) {
		t.Fatal(err)
	}
}

func TestRejoinRefusesWrongUse(t *testing.T) {
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		d, err := world.Dup()
		if err != nil {
			return err
		}
		if _, err := cohort.Rejoin(context.Background(), d); !errors.Is(err, cohort.ErrComm) {
			return fmt.Errorf("a duplicate: %v", err)
		}
		if _, err := cohort.Rejoin(context.Background(), nil); !errors.Is(err, cohort.ErrComm) {
			return fmt.Errorf("nil: %v", err)
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			return nil // finishes
		}
		if _, err := cohort.Rejoin(context.Background(), world); !errors.Is(err, cohort.ErrPeerLost) || !strings.Contains(err.Error(), "rank 0 has finished") {
			return fmt.Errorf("after rank 0 has finished: %v", err)
		}
		if err := world.Close(); err != nil {
			return err
		}
		if _, err := cohort.Rejoin(context.Background(), world); !errors.Is(err, cohort.ErrClosed) {
			return fmt.Errorf("a closed world: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Close of the world ends a Rejoin that waits for others.
func TestCloseEndsRejoin(t *testing.T) {
	waits, ended := make(chan bool), make(chan bool)
	err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
		switch world.Rank() {
		case 0:
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			failed := make(chan error)
			go func() {
				_, err := cohort.Rejoin(ctx, world)
				failed <- err
			}()
			<-waits
			closed := world.Close()
			if err := <-failed; closed != nil || !errors.Is(err, cohort.ErrClosed) {
				return fmt.Errorf("%v, and %v after Close", closed, err)
			}
			close(ended)
		case 1:
			for { // until rank 0 waits
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				_, err := cohort.Rejoin(ctx, world)
				cancel()
				if !errors.Is(err, cohort.ErrTimeout) {
					return err
				}
				if strings.HasSuffix(err.Error(), "not there yet: rank 2") {
					break
				}
			}
			close(waits)
			<-ended
		default:
			<-ended
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRejoinWithoutLauncher(t *testing.T) {
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer world.Close()
	if _, err := cohort.Rejoin(context.Background(), world); !errors.Is(err, cohort.ErrNotSupported) {
		t.Errorf("Rejoin of a process without others: %v", err)
	}
	if world.Resized() != nil || world.Generation() != 0 {
		t.Errorf("generation %d, resized %v", world.Generation(), world.Resized())
	}
}

// Ranks fail at random, also while the others still deal with the last failure. The data are right to the end.
func TestStormOfFailures(t *testing.T) {
	const ranks = 4
	steps, losses := 1000, 100
	if testing.Short() {
		steps = 200
	}
	type state struct{ Step, Sum int }
	var failed atomic.Int32
	failing := errors.New("on purpose")
	err := cohort.RunWith(t.Context(), ranks, cohort.RunOptions{Restarts: losses}, func(world *cohort.Comm) error {
		var s state
		maybe := func() error {
			time.Sleep(time.Millisecond) // on purpose: a rank that ends at once would wait before it is started again
			if rand.IntN(100) == 0 && int(failed.Add(1)) <= losses {
				return failing
			}
			return nil
		}
		for {
			err := func() error {
				latest, err := cohort.AllreduceOne(world, cohort.Loc[int]{Val: s.Step, Idx: int64(world.Rank())}, cohort.MaxLoc)
				if err != nil {
					return err
				}
				if s, err = cohort.BcastOne(world, s, int(latest.Idx)); err != nil {
					return err
				}
				for s.Step < steps {
					if err := maybe(); err != nil {
						return err
					}
					sum, err := cohort.AllreduceOne(world, s.Step*(world.Rank()+1), cohort.Sum)
					if err != nil {
						return err
					}
					s = state{s.Step + 1, s.Sum + sum}
				}
				return nil
			}()
			if errors.Is(err, failing) {
				return err
			}
			all, agreed := world.Agree(map[bool]int{true: 1}[err == nil])
			switch {
			case agreed != nil:
				return agreed
			case all == 1:
				if want := 10 * steps * (steps - 1) / 2; s.Sum != want { // 1 + 2 + 3 + 4 for each step
					return fmt.Errorf("rank %d: the sum is %d, want %d", world.Rank(), s.Sum, want)
				}
				return nil
			}
			if world, err = cohort.Rejoin(t.Context(), world); err != nil {
				return err
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d losses", min(int(failed.Load()), losses))
}

// However a rank fails, RunWith starts it no more often than it may, ends when its context does, and returns the errors of
// ranks that were not replaced.
func TestRunWithStartsRanksNoMoreThanAllowed(t *testing.T) {
	full := errors.New("the disk is full")
	for _, c := range []struct {
		name string
		body func(world *cohort.Comm, calls int32, end context.CancelFunc) error
		most int32 // calls of body
		want error
	}{
		{"Goexit", func(*cohort.Comm, int32, context.CancelFunc) error { runtime.Goexit(); return nil }, 4, cohort.ErrPeerLost},
		{"Abort", func(world *cohort.Comm, _ int32, _ context.CancelFunc) error {
			if world.Rank() == 0 {
				return world.Abort(3)
			}
			return world.Barrier()
		}, 4, cohort.ErrPeerLost},
		{"the others finish", func(world *cohort.Comm, calls int32, _ context.CancelFunc) error {
			if world.Rank() == 1 {
				return full
			}
			time.Sleep(20 * time.Millisecond) // on purpose: the others finish later
			return nil
		}, 4, full},
		{"the context ends", func(world *cohort.Comm, calls int32, end context.CancelFunc) error {
			if calls == 3 {
				end()
			}
			return full
		}, 6, full},
	} {
		ctx, end := context.WithCancel(t.Context())
		var calls atomic.Int32
		restarts := 2
		if c.name == "the context ends" {
			restarts = 1000
		}
		err := cohort.RunWith(ctx, 2, cohort.RunOptions{Restarts: restarts}, func(world *cohort.Comm) error {
			return c.body(world, calls.Add(1), end)
		})
		end()
		if !errors.Is(err, c.want) || calls.Load() > c.most || strings.Contains(fmt.Sprint(err), "rank -") {
			t.Errorf("%s: %d calls, want at most %d, and %v, want %v", c.name, calls.Load(), c.most, err, c.want)
		}
	}
}

// One goroutine of a rank at a time calls Rejoin, and COHORT_TIMEOUT limits it as other operations.
func TestRejoinIsAnOperation(t *testing.T) {
	t.Setenv("COHORT_TIMEOUT", "300ms")
	err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error {
		if world.Rank() == 1 {
			_, err := cohort.Recv(world, make([]byte, 1), 0, 0)
			for errors.Is(err, cohort.ErrTimeout) {
				_, err = cohort.Recv(world, make([]byte, 1), 0, 0)
			}
			return err
		}
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := cohort.Rejoin(context.Background(), world)
				errs <- err
			}()
		}
		first, second := <-errs, <-errs
		if !errors.Is(first, cohort.ErrBusy) || !errors.Is(second, cohort.ErrTimeout) {
			return fmt.Errorf("two goroutines: %v, and %v", first, second)
		}
		return cohort.Send(world, []byte{1}, 1, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
}
