package tasks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Rank 1 is told to stop in task 2, and rank 2 dies before rank 1 has said goodbye. Rank 0 then asks for
// task 2 again, and must not get rank 1's answer to task 0.
func TestLossDuringStopMixesUpNoResults(t *testing.T) {
	begun, dies := make(chan struct{}), make(chan struct{})
	var got []int
	var others sync.WaitGroup
	err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		do := func(ctx context.Context, i int) (int, error) {
			switch {
			case i == 0:
				return 100, nil
			case world.Rank() == 1:
				close(begun)
				<-ctx.Done()
				close(dies)
				for world.Lost() == nil {
					runtime.Gosched()
				}
			default:
				<-ctx.Done()
			}
			return 100 + i, nil
		}
		loop := func() {
			for v, err := range MapUnordered(ctx, world, count(3), do) {
				if world.Rank() > 0 || err != nil {
					continue
				}
				if got = append(got, v); v == 100 {
					<-begun
					cancel()
				}
			}
		}
		if world.Rank() == 2 {
			others.Go(loop)
			<-dies
			return errDies
		}
		loop()
		return nil
	})
	others.Wait()
	if !errors.Is(err, errDies) {
		t.Error(err)
	}
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("got the results %v, one of them twice", got)
	}
}

// Ranks die at any moment of several loops. Results stay in order, and a loop that ends without an error
// has them all.
func TestLossesAtAnyMomentLoseNoResult(t *testing.T) {
	const tasks = 50
	for range 30 {
		n := 2 + rand.N(6)
		dying := map[int]time.Duration{}
		for range rand.N(n) {
			dying[rand.N(n)] = rand.N(8 * time.Millisecond)
		}
		body := func(world *cohort.Comm) {
			c := world
			for range 4 {
				next := 0
				var last error
				for v, err := range Map(t.Context(), c, count(tasks), square) {
					if last = err; err != nil {
						continue
					}
					if v != next*next {
						t.Errorf("%d ranks, losses %v: result %d is %d, want %d", n, dying, next, v, next*next)
					}
					next++
				}
				if c.Rank() == 0 && last == nil && next != tasks {
					t.Errorf("%d ranks, losses %v: %d results, want %d", n, dying, next, tasks)
				}
				d, err := c.Shrink()
				if err != nil { // this rank has died
					return
				}
				c = d
			}
		}
		var others sync.WaitGroup
		err := cohort.Run(t.Context(), n, func(world *cohort.Comm) error {
			if after, ok := dying[world.Rank()]; ok {
				others.Go(func() { body(world) })
				time.Sleep(after) // on purpose: the rank dies at this moment
				return errDies
			}
			body(world)
			return nil
		})
		others.Wait()
		if len(dying) > 0 != errors.Is(err, errDies) {
			t.Errorf("%d ranks, losses %v: %v", n, dying, err)
		}
	}
}

// The context of rank 1's communicator ends while rank 1 runs task 0.
func TestTaskOfRankThatLeavesIsDoneByAnother(t *testing.T) {
	ranks(t, 3, func(world *cohort.Comm) error {
		ends, end := context.WithCancel(t.Context())
		defer end()
		c := world
		if world.Rank() == 1 {
			c = world.WithContext(ends)
		}
		n := 0
		var last error
		for v, err := range Map(t.Context(), c, count(3), func(ctx context.Context, i int) (int, error) {
			if world.Rank() == 1 {
				end()
				<-ctx.Done()
			}
			return i, nil
		}) {
			if last = err; err == nil && v == n {
				n++
			}
		}
		if world.Rank() == 1 && !errors.Is(last, cohort.ErrCanceled) {
			return fmt.Errorf("rank 1 left the loop with %v, want %v", last, cohort.ErrCanceled)
		}
		if world.Rank() == 0 && (last != nil || n != 3) {
			return fmt.Errorf("%d results, %v; want 3", n, last)
		}
		return nil
	})
}

func TestTaskThatEndsItsGoroutineIsAnError(t *testing.T) {
	ranks(t, 2, func(world *cohort.Comm) error {
		n := 0
		for _, err := range Map(t.Context(), world, count(3), func(_ context.Context, i int) (int, error) {
			if i == 1 {
				runtime.Goexit()
			}
			return i, nil
		}) {
			if (n == 1) != (err != nil && strings.Contains(err.Error(), "ended its goroutine")) {
				return fmt.Errorf("task %d: %v", n, err)
			}
			n++
		}
		if world.Rank() == 0 && n != 3 {
			return fmt.Errorf("%d results, want 3", n)
		}
		return nil
	})
}

// Rank 2 revokes the communicator before rank 0 dies, like a rank that learns of the death first.
func TestLossOfRankZeroIsPeerLostAfterRevoke(t *testing.T) {
	revoked := make(chan struct{})
	err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		switch world.Rank() {
		case 0:
			<-revoked
			return errDies
		case 1:
			go func() {
				defer close(revoked)
				if _, err := cohort.Recv(c, make([]byte, 1), 2, 1); !errors.Is(err, cohort.ErrBroken) {
					t.Errorf("receive on a revoked communicator: %v, want %v", err, cohort.ErrBroken)
				}
			}()
			if err := serve(t.Context(), c, square); !errors.Is(err, cohort.ErrPeerLost) {
				t.Errorf("%v, want %v", err, cohort.ErrPeerLost)
			}
			return nil
		}
		defer c.Close()
		if err := c.Revoke(); err != nil {
			return err
		}
		d, err := c.Shrink()
		if err != nil {
			return err
		}
		return d.Close()
	})
	if !errors.Is(err, errDies) {
		t.Error(err)
	}
}

// The only worker revokes the communicator, like a rank that learns of a death first, and then dies itself.
func TestLossOfLastWorkerIsPeerLostAfterRevoke(t *testing.T) {
	err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			return errors.Join(errDies, c.Revoke())
		}
		err = lead(t.Context(), c, count(3), true, func(v int, err error) bool {
			t.Errorf("a result without a worker: %d, %v", v, err)
			return true
		})
		if !errors.Is(err, cohort.ErrPeerLost) {
			t.Errorf("%v, want %v", err, cohort.ErrPeerLost)
		}
		return nil
	})
	if !errors.Is(err, errDies) {
		t.Error(err)
	}
}
