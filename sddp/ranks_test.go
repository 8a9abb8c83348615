package sddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// onRanks trains and simulates on n ranks and returns what every rank got.
func onRanks(t *testing.T, n int, c *Case, opt Options, scenarios int) ([]*Training, []*Simulation) {
	t.Helper()
	trainings, simulations := make([]*Training, n), make([]*Simulation, n)
	ctx := context.Background()
	err := cohort.Run(ctx, n, func(world *cohort.Comm) error {
		tr, err := Train(ctx, world, c, opt)
		if err != nil {
			return err
		}
		sim, err := Simulate(ctx, world, c, tr.Policy, SimulateOptions{Scenarios: scenarios})
		trainings[world.Rank()], simulations[world.Rank()] = tr, sim
		return err
	})
	if err != nil {
		t.Fatalf("%d ranks: %v", n, err)
	}
	return trainings, simulations
}

// plain returns the iterations without their times.
func plain(its []Iteration) []Iteration {
	out := append([]Iteration(nil), its...)
	for i := range out {
		out[i].LP, out[i].Comm, out[i].Total = 0, 0, 0
	}
	return out
}

// The policy, all figures and the simulation have the same bits on every rank, for any number of ranks:
// also with more ranks than passes and with uneven blocks.
func TestSameForAnyNumberOfRanks(t *testing.T) {
	c := readShipped(t, "brazil4")
	opt := Options{Iterations: 12, Passes: 6, Openings: 5, Seed: 11}
	ranks := []int{3, 8, 2, 4}
	if testing.Short() {
		opt.Iterations, opt.Openings, ranks = 4, 3, ranks[:2]
	}
	trainings, simulations := onRanks(t, 1, c, opt, 40)
	want, wantSim := trainings[0], simulations[0]
	for _, n := range ranks {
		trainings, simulations := onRanks(t, n, c, opt, 40)
		for r := range n {
			if got := trainings[r].Policy; got.Pool.SHA256() != want.Policy.Pool.SHA256() || got.LowerBound != want.Policy.LowerBound {
				t.Errorf("%d ranks, rank %d: the policy differs from that of one rank", n, r)
			}
			if !reflect.DeepEqual(plain(trainings[r].Iterations), plain(want.Iterations)) {
				t.Errorf("%d ranks, rank %d: the iterations differ; the last one is\n%+v, want\n%+v", n, r, plain(trainings[r].Iterations)[opt.Iterations-1], plain(want.Iterations)[opt.Iterations-1])
			}
			if !reflect.DeepEqual(simulations[r], wantSim) {
				t.Errorf("%d ranks, rank %d: the simulation differs", n, r)
			}
		}
	}
	again, _ := onRanks(t, 1, c, Options{Iterations: opt.Iterations, Passes: 6, Openings: 5, Seed: 12}, 2)
	if again[0].Policy.Pool.SHA256() == want.Policy.Pool.SHA256() {
		t.Error("another seed gives the same cuts")
	}
}

// A rank that fails returns its own error and the others one that names it. The communicator stays
// usable.
func TestFailureOfOneRankEndsAll(t *testing.T) {
	cause := errors.New("the program of stage 3 is not solved")
	var mu sync.Mutex
	got := map[int]error{}
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		team := newTeam(world)
		var failed error
		if world.Rank() == 1 {
			failed = cause
		}
		err := team.share("cuts", make([]float64, 6*2), 6, 2, failed)
		mu.Lock()
		got[world.Rank()] = err
		mu.Unlock()
		return team.share("cuts", make([]float64, 6*2), 6, 2, nil)
	})
	if err != nil {
		t.Errorf("the next exchange: %v", err)
	}
	if got[1] != cause {
		t.Errorf("rank 1 got %v, want its own error", got[1])
	}
	for _, r := range []int{0, 2} {
		if !errors.Is(got[r], ErrPeer) || !strings.Contains(fmt.Sprint(got[r]), "rank 1") {
			t.Errorf("rank %d got %v, want ErrPeer naming rank 1", r, got[r])
		}
	}
}

// When the context of one rank ends, the others do not wait for it.
func TestStopOfOneRankEndsAll(t *testing.T) {
	c := readShipped(t, "toy")
	stopped := errors.New("stopped for the test")
	for _, threads := range []int{1, 2} {
		err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			opt := Options{Iterations: 100000, Passes: 3, Threads: threads}
			if world.Rank() == 2 {
				opt.Progress = func(it Iteration) {
					if it.Number == 2 {
						cancel(stopped)
					}
				}
			}
			_, err := Train(ctx, world, c, opt)
			if err == nil {
				return errors.New("the training succeeded")
			}
			return err
		})
		if err == nil || !errors.Is(err, stopped) {
			t.Errorf("%d threads: got %v, want the cause of the stop in it", threads, err)
		}
	}
}

func TestDifferentOptionsAreReported(t *testing.T) {
	c := readShipped(t, "toy")
	var mu sync.Mutex
	n := 0
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		_, err := Train(context.Background(), world, c, Options{Seed: uint64(world.Rank()), Iterations: 1})
		if err != nil && strings.Contains(err.Error(), "do not have the same case and options") {
			mu.Lock()
			n++
			mu.Unlock()
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Errorf("%d of 2 ranks reported the difference (%v)", n, err)
	}
}

func TestAllRanksLoadCaseOfRankZero(t *testing.T) {
	want := readShipped(t, "brazil4").SHA256()
	bad := edit(t, "thermals.json", "50", "-50")
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		dir := filepath.Join("cases", "brazil4")
		if world.Rank() > 0 {
			dir = "not read here"
		}
		c, err := LoadCase(world, dir)
		if err != nil {
			return err
		}
		if c.SHA256() != want {
			return fmt.Errorf("rank %d has another case", world.Rank())
		}
		for _, k := range []struct{ dir, text string }{{bad, "thermals[0].max_mw"}, {"nowhere", "nowhere"}} {
			if _, err := LoadCase(world, k.dir); err == nil || !strings.Contains(err.Error(), k.text) {
				return fmt.Errorf("rank %d, case %s: got %v", world.Rank(), k.dir, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTrainingStopsByEachRule(t *testing.T) {
	c := readShipped(t, "toy")
	if tr := trained(t, c, Options{Iterations: 40, Passes: 2, Stall: 3}); !strings.Contains(tr.Stopped, "no more than 1e-06 in 3 iterations") || len(tr.Iterations) >= 40 {
		t.Errorf("after %d iterations: %q, want a stalled lower bound", len(tr.Iterations), tr.Stopped)
	}
	coarse := trained(t, c, Options{Iterations: 40, Passes: 2, Stall: 3, StallTolerance: 0.5})
	if n := len(coarse.Iterations); n > 5 || !strings.Contains(coarse.Stopped, "no more than 0.5 in 3 iterations") {
		t.Errorf("after %d iterations: %q, want the coarse stall", n, coarse.Stopped)
	}
	late := trained(t, c, Options{Iterations: 40, Passes: 2, TimeLimit: 1})
	if len(late.Iterations) != 1 || !strings.Contains(late.Stopped, "time limit of 1ns") {
		t.Errorf("after %d iterations: %q, want the time limit", len(late.Iterations), late.Stopped)
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	c := readShipped(t, "toy")
	for _, opt := range []Options{{Iterations: -1}, {Passes: -1}, {Openings: maxOpenings + 1}, {Gap: 1}, {Gap: -0.1}, {Stall: -1}, {StallTolerance: math.NaN()}, {TimeLimit: -1}, {GapEvery: -1}, {GapScenarios: 399}} {
		err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
			_, err := Train(context.Background(), world, c, opt)
			return err
		})
		if err == nil {
			t.Errorf("%+v was accepted", opt)
		}
	}
}

// With the openings of the training, the interval of the mean contains the lower bound, which is the true
// expectation. With new inflows, costs differ.
func TestSimulationBalancesPowerAndWater(t *testing.T) {
	c := readShipped(t, "brazil4")
	opt, scenarios := Options{Iterations: 30, Passes: 6, Openings: 4, Seed: 5}, 600
	if testing.Short() {
		opt, scenarios = Options{Iterations: 20, Passes: 4, Openings: 3, Seed: 5}, 150
	}
	tr := trained(t, c, opt)
	var in, out *Simulation
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		a, err := Simulate(context.Background(), world, c, tr.Policy, SimulateOptions{Scenarios: scenarios})
		if err != nil {
			return err
		}
		b, err := Simulate(context.Background(), world, c, tr.Policy, SimulateOptions{Scenarios: scenarios / 4, Sampling: OutOfSample})
		if world.Rank() == 0 {
			in, out = a, b
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// The policy costs at least the lower bound, so its mean is below only by chance: twice the
	// half width is four standard errors. It is nearly converged, so above by little more.
	lower, mean, width := tr.Policy.LowerBound, in.Cost.Mean, in.Cost.CI95
	if mean < lower-2*width || mean > 1.01*lower+2*width {
		t.Errorf("lower bound %.5g, simulated %.5g ± %.3g", lower, mean, width)
	}
	if out.Cost.Mean == in.Cost.Mean || !(out.Cost.Mean > 0) {
		t.Errorf("with new inflows the policy costs %v, with the openings %v", out.Cost.Mean, in.Cost.Mean)
	}
	// Generation, deficit and imports equal the load; water is used, spilled or kept.
	stages := 0.0
	for s, st := range in.Stages {
		stages += st.Cost
		for b := range c.Buses {
			if got := st.Hydro[b] + st.Thermal[b] + st.Deficit[b] + st.NetImport(c, b); !within(got, st.Load[b]) && absent(got-st.Load[b]) {
				t.Errorf("stage %d, %s: %v MW for a load of %v", s+1, c.Buses[b].Name, got, st.Load[b])
			}
		}
		for i, r := range c.Reservoirs {
			before := r.InitialStorage
			if s > 0 {
				before = in.Stages[s-1].Storage[i]
			}
			if left := before + st.Inflow[i] - st.Hydro[r.Bus] - st.Spill[i]; !within(left, st.Storage[i]) && absent(left-st.Storage[i]) {
				t.Errorf("stage %d, %s: %v should be left, got %v", s+1, r.Name, left, st.Storage[i])
			}
			if band := st.StorageBand[i]; band[0] > band[1] || band[1] > band[2] || band[2] > r.MaxStorage {
				t.Errorf("stage %d, %s: band %v", s+1, r.Name, band)
			}
		}
	}
	if !within(stages, in.Cost.Mean) {
		t.Errorf("the stages cost %v together, the horizon %v", stages, in.Cost.Mean)
	}
}

// absent reports whether a difference is more than a thousandth of a MW.
func absent(d float64) bool { return d > 1e-3 || d < -1e-3 }
