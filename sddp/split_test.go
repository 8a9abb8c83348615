package sddp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
)

// The policy, all figures and the simulation have the same bits for any split of the work over ranks and
// threads: also with more workers than passes, with uneven blocks, and with different numbers of threads.
func TestSameForAnySplit(t *testing.T) {
	c := readShipped(t, "brazil4")
	opt := Options{Iterations: 6, Passes: 5, Openings: 4, Seed: 7, Threads: 1}
	scenarios := 40
	if testing.Short() {
		opt.Iterations, opt.Openings, scenarios = 3, 3, 15
	}
	type result struct {
		cuts    string
		its     []Iteration
		in, out *Simulation // the openings, and inflows drawn anew
	}
	var want *result
	before := runtime.GOMAXPROCS(0)
	splits := []struct {
		ranks   int
		threads func(rank int) int
		pin     string
	}{
		{1, func(int) int { return 1 }, "none"},
		{1, func(int) int { return 9 }, "none"},
		{3, func(rank int) int { return 1 + rank }, "none"},
		{2, func(int) int { return 2 }, "cores"},
		{1, func(int) int { return 2 }, "numa"},
		{1, func(int) int { return 2 }, "none"},
		{2, func(int) int { return 1 }, "none"},
		{2, func(int) int { return 2 }, "none"},
		{4, func(int) int { return 1 }, "none"},
		{3, func(int) int { return 2 }, "none"},
		{1, func(int) int { return 1 }, "cores"},
	}
	if testing.Short() {
		splits = splits[:5]
	}
	for _, split := range splits {
		if split.pin != "none" && runtime.GOOS != "linux" {
			continue
		}
		results := make([]result, split.ranks)
		ctx := context.Background()
		err := cohort.Run(ctx, split.ranks, func(world *cohort.Comm) error {
			r, opt := &results[world.Rank()], opt
			opt.Threads, opt.Pin = split.threads(world.Rank()), split.pin
			tr, err := Train(ctx, world, c, opt)
			if err != nil {
				return err
			}
			r.cuts, r.its = tr.Policy.Pool.SHA256(), plain(tr.Iterations)
			if r.in, err = Simulate(ctx, world, c, tr.Policy, SimulateOptions{Scenarios: scenarios, Threads: opt.Threads, Pin: opt.Pin}); err != nil {
				return err
			}
			other := SimulateOptions{Scenarios: scenarios, Sampling: OutOfSample, Threads: 3 - opt.Threads%2}
			r.out, err = Simulate(ctx, world, c, tr.Policy, other)
			return err
		})
		name := fmt.Sprintf("%d ranks × %d threads pinned to %s", split.ranks, split.threads(0), split.pin)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want == nil {
			want = &results[0]
		}
		for rank := range results {
			if got := &results[rank]; got.cuts != want.cuts {
				t.Errorf("%s, rank %d: other cuts", name, rank)
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, rank %d: the same cuts, but other figures", name, rank)
			}
		}
	}
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("Go has %d processors, %d before: workers remain", after, before)
	}
}

// The same with every feature of a case, which brazil4 has not.
func TestSameForAnySplitWithFeatures(t *testing.T) {
	numbers := []int{1, 3, 7}
	if testing.Short() {
		numbers = numbers[:2]
	}
	for n := 12; n < 12+len(features)+2; n++ {
		name, c := featured(n, rand.New(rand.NewPCG(uint64(n), 79)))
		t.Run(name, func(t *testing.T) {
			opt := Options{Iterations: 4, Passes: 5, Openings: 3, Seed: 7}
			var cuts string
			var sims [2]*Simulation
			for _, ranks := range numbers {
				err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
					opt := opt
					opt.Threads = 1 + world.Rank()%2
					tr, err := Train(context.Background(), world, c, opt)
					if err != nil {
						return err
					}
					for i, sampling := range []Sampling{InSample, OutOfSample} {
						sim, err := Simulate(context.Background(), world, c, tr.Policy, SimulateOptions{Scenarios: 20, Sampling: sampling, Threads: opt.Threads})
						if err != nil {
							return err
						}
						if world.Rank() > 0 {
							continue
						}
						if ranks > 1 && !reflect.DeepEqual(sim, sims[i]) {
							t.Errorf("%d ranks, %s: other figures", ranks, sampling)
						}
						sims[i] = sim
					}
					if world.Rank() == 0 {
						sum := tr.Policy.Pool.SHA256()
						if ranks > 1 && sum != cuts {
							t.Errorf("%d ranks: other cuts", ranks)
						}
						cuts = sum
						if _, err := ParsePolicy("policy", tr.Policy.Encode(), c); err != nil {
							t.Errorf("the policy cannot be read: %v", err)
						}
					}
					return nil
				})
				if err != nil {
					t.Fatalf("%d ranks: %v", ranks, err)
				}
			}
		})
	}
}

func TestEnvOfProgramIsUsedAndKept(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 3, Passes: 4, Openings: 3}
	want := trained(t, c, opt).Policy.Pool.SHA256()
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		env, err := hybrid.Join(world, &hybrid.Config{Threads: 2, KeepEnvironment: true})
		if err != nil {
			return err
		}
		opt := opt
		opt.Env, opt.Threads, opt.Pin = env, -1, "ignored"
		tr, err := Train(context.Background(), world, c, opt)
		if err != nil {
			return err
		}
		if tr.Policy.Pool.SHA256() != want {
			return errors.New("other cuts")
		}
		if _, err := Simulate(context.Background(), world, c, tr.Policy, SimulateOptions{Scenarios: 5, Env: env}); err != nil {
			return err
		}
		return errors.Join(env.Pool.Run(func() error { return nil }), env.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

func TestInvalidThreadsFailOnAllRanks(t *testing.T) {
	c := readShipped(t, "toy")
	for text, bad := range map[string]Options{"-3 threads": {Threads: -3}, `"socket"`: {Pin: "socket"}} {
		var mu sync.Mutex
		var got []error
		cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
			opt := Options{}
			if world.Rank() == 1 {
				opt = bad
			}
			opt.Iterations = 1
			_, err := Train(context.Background(), world, c, opt)
			mu.Lock()
			got = append(got, err)
			mu.Unlock()
			return nil
		})
		for _, err := range got {
			if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("%+v on rank 1: got %v, want %q", bad, err, text)
			}
		}
		if len(got) != 3 {
			t.Errorf("%d ranks of 3 returned", len(got))
		}
	}
}

// testCrew returns a crew with a number of workers.
func testCrew(t *testing.T, threads int) *crew {
	t.Helper()
	env, err := hybrid.Start(context.Background(), &hybrid.Config{Threads: threads, Pin: "none", KeepEnvironment: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	})
	w, err := newCrew(env.World, 0, "", env)
	if err != nil {
		t.Fatal(err)
	}
	if w.threads() != threads || w.inline != (threads == 1) {
		t.Errorf("%d workers, inline %v; want %d", w.threads(), w.inline, threads)
	}
	return w
}

// The error of a task does not mention the worker that ran it.
func TestWorkersReturnErrorOfTask(t *testing.T) {
	cause := errors.New("not solved")
	check := func(t *testing.T, threads int) {
		w := testCrew(t, threads)
		done := make([]bool, 50)
		err := w.run(func() error {
			err := w.each(len(done), func(_, i int) error { done[i] = true; return nil })
			if err != nil {
				return err
			}
			return w.each(len(done), func(_, i int) error {
				if i == 0 {
					return cause
				}
				return nil
			})
		})
		if err != cause {
			t.Errorf("%d workers: got %v, want the task's own error", threads, err)
		}
		for i, d := range done {
			if !d {
				t.Errorf("%d workers: task %d was not run", threads, i)
			}
		}
		if threads == 1 {
			return // a panic reaches the caller
		}
		err = w.each(4, func(int, int) error { panic(cause) })
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "TestWorkersReturnErrorOfTask") {
			t.Errorf("a panic: got %v, want it with its stack", err)
		}
		if err := w.run(func() error { panic(cause) }); !errors.Is(err, cause) {
			t.Errorf("a panic in run: got %v", err)
		}
		if _, err := forWorkers(w, func() (int, error) { return 0, cause }); err != cause {
			t.Errorf("for workers: got %v", err)
		}
	}
	for _, threads := range []int{1, 3} {
		t.Run(strconv.Itoa(threads), func(t *testing.T) { check(t, threads) })
	}
}

// When one worker cannot solve a trial point, all ranks return from the same exchange.
func TestFailureOfOneWorkerEndsAllRanks(t *testing.T) {
	cause := errors.New("the program of stage 3 is not solved")
	var mu sync.Mutex
	got := map[int]error{}
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		crew, err := newCrew(world, 2, "none", nil)
		if err != nil {
			return err
		}
		defer crew.close()
		team := newTeam(world)
		all := make([]float64, 12)
		lo, hi := team.block(team.rank, len(all))
		err = crew.run(func() error {
			failed := crew.each(hi-lo, func(_, i int) error {
				if lo+i == 6 { // the third of rank 1's four
					return fmt.Errorf("backward pass %d: %w", lo+i+1, cause)
				}
				all[lo+i] = 1
				return nil
			})
			return team.share("cuts", all, len(all), 1, failed)
		})
		mu.Lock()
		got[world.Rank()] = err
		mu.Unlock()
		return team.share("cuts", make([]float64, len(all)), len(all), 1, nil)
	})
	if err != nil {
		t.Errorf("the next exchange: %v", err)
	}
	if fmt.Sprint(got[1]) != "backward pass 7: "+cause.Error() || !errors.Is(got[1], cause) {
		t.Errorf("rank 1 got %v, want its own error", got[1])
	}
	for _, r := range []int{0, 2} {
		if !errors.Is(got[r], ErrPeer) || !strings.Contains(fmt.Sprint(got[r]), "rank 1") {
			t.Errorf("rank %d got %v, want ErrPeer naming rank 1", r, got[r])
		}
	}
}
