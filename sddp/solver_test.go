package sddp

import (
	"context"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/need"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// embedded returns the solver that needs no library.
func embedded() lp.Solver { return lp.New() }

// solvers returns the constructor of a kind of solver. The test needs its library.
func solvers(t *testing.T, kind string) func() lp.Solver {
	t.Helper()
	newSolver, _, err := lp.Open(kind, 0)
	if err != nil {
		need.Missing(t, "%v", err)
	}
	return newSolver
}

// With Clp too, the policy and the simulation have the same bits for any split over ranks and threads.
func TestClpGivesSameBitsForAnySplit(t *testing.T) {
	solvers(t, lp.CLP)
	c := readShipped(t, "brazil4")
	opt := Options{Iterations: 3, Passes: 4, Openings: 3, Seed: 5, Solver: lp.CLP}
	var want *Training
	var wantCost Estimate
	splits := [][2]int{{1, 1}, {2, 2}, {3, 1}, {1, 2}, {2, 1}}
	if testing.Short() {
		splits = splits[:3]
	}
	for _, split := range splits {
		results := make([]*Training, split[0])
		costs := make([]Estimate, split[0])
		err := cohort.Run(context.Background(), split[0], func(world *cohort.Comm) (err error) {
			opt := opt
			opt.Threads = split[1]
			if results[world.Rank()], err = Train(context.Background(), world, c, opt); err != nil {
				return err
			}
			sim, err := Simulate(context.Background(), world, c, results[world.Rank()].Policy,
				SimulateOptions{Scenarios: 20, Threads: split[1], Solver: lp.CLP})
			if err == nil {
				costs[world.Rank()] = sim.Cost
			}
			return err
		})
		if err != nil {
			t.Fatalf("%v: %v", split, err)
		}
		if want == nil {
			want, wantCost = results[0], costs[0]
		}
		for r, got := range results {
			if got.Policy.Pool.SHA256() != want.Policy.Pool.SHA256() || got.Policy.LowerBound != want.Policy.LowerBound || costs[r] != wantCost {
				t.Errorf("%d ranks × %d threads, rank %d: the policy or its cost differs from that of one rank", split[0], split[1], r)
			}
			if got.Solver.Kind != lp.CLP {
				t.Errorf("the solver was %v", got.Solver)
			}
		}
	}
}

func TestSolversConvergeToSameBound(t *testing.T) {
	solvers(t, lp.CLP)
	c := readShipped(t, "toy")
	for _, kind := range []string{lp.Embedded, lp.CLP} {
		tr := trained(t, c, Options{Iterations: 5, Passes: 2, Solver: kind})
		const cost = 11800 // by hand, see TestToyEqualsSolutionByHand
		if !within(tr.Policy.LowerBound, cost) || tr.Solver.Kind != kind {
			t.Errorf("%s: lower bound %v, want %v; solver %v", kind, tr.Policy.LowerBound, cost, tr.Solver)
		}
	}
}

func TestUnknownSolverIsRejected(t *testing.T) {
	c := readShipped(t, "toy")
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		_, err := Train(context.Background(), world, c, Options{Iterations: 1, Solver: "glpk"})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), `got solver "glpk", want auto, embedded or clp`) {
		t.Errorf("got %v", err)
	}
}
