package sddp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// When only the initial storage has changed, a converged policy is converged from the first iteration on.
func TestWarmStartWithOtherStorageKeepsCuts(t *testing.T) {
	for n := range 4 {
		rng := rand.New(rand.NewPCG(uint64(n), 79))
		c := randomCase(rng)
		opt := Options{Iterations: 80, Passes: 6, Openings: 3, Seed: uint64(n)}
		opt.Warm = trained(t, c, opt).Policy
		for r := range c.Reservoirs {
			c.Reservoirs[r].InitialStorage = c.Reservoirs[r].MaxStorage * rng.Float64()
		}
		want := optimum(t, c, NewNoise(c, opt.Seed, opt.Openings))
		opt.Iterations = 5
		tr := trained(t, c, opt)
		if got := tr.Policy.LowerBound; !within(got, want) {
			t.Errorf("case %d: the lower bound is %.10g after %d iterations, the optimum %.10g", n, got, opt.Iterations, want)
		}
		if first := tr.Iterations[0].LowerBound; first < 0.9*want {
			t.Errorf("case %d: the lower bound is %.10g after one iteration, the optimum %.10g", n, first, want)
		}
	}
}

// Where the load has fallen, old cuts are too high. They guide the first passes, and the bound never exceeds
// the optimum.
func TestWarmStartWithOtherLoadStaysValid(t *testing.T) {
	for n := range 4 {
		rng := rand.New(rand.NewPCG(uint64(n), 80))
		c := randomCase(rng)
		opt := Options{Iterations: 80, Passes: 6, Openings: 3, Seed: uint64(n)}
		opt.Warm = trained(t, c, opt).Policy
		for b := range c.Buses {
			for p := range c.Buses[b].LoadMW {
				c.Buses[b].LoadMW[p] *= 0.8
			}
		}
		want := optimum(t, c, NewNoise(c, opt.Seed, opt.Openings))
		tr := trained(t, c, opt)
		for _, it := range tr.Iterations {
			if it.LowerBound > want && !within(it.LowerBound, want) {
				t.Fatalf("case %d, iteration %d: the lower bound %.10g exceeds the optimum %.10g", n, it.Number, it.LowerBound, want)
			}
		}
		if got := tr.Policy.LowerBound; !within(got, want) {
			t.Errorf("case %d: the lower bound ends at %.10g, the optimum is %.10g", n, got, want)
		}
	}
}

// An old policy guides the first passes of a case with another load, so that the bound is nearer to its end
// than in a training from nothing.
func TestWarmStartSavesIterations(t *testing.T) {
	c := rotated(t, 12)
	opt := Options{Iterations: 20, Passes: 4, Openings: 5}
	old := trained(t, c, opt).Policy
	for b := range c.Buses {
		for p := range c.Buses[b].LoadMW {
			c.Buses[b].LoadMW[p] *= 1.02
		}
	}
	opt.Iterations = 2
	cold := trained(t, c, opt).Policy.LowerBound
	opt.Warm = old
	if warm := trained(t, c, opt).Policy.LowerBound; warm <= 1.1*cold {
		t.Errorf("the lower bound is %v after two iterations, %v without the old policy", warm, cold)
	}
}

func TestWarmStartNeedsSameStagesAndReservoirs(t *testing.T) {
	c, p := toyPolicy(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, PolicyFile), p.Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	load := func(c *Case) error {
		return cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
			old, err := LoadWarmStart(world, dir, c)
			if err == nil && old.Pool.SHA256() != p.Pool.SHA256() {
				err = fmt.Errorf("another policy")
			}
			return err
		})
	}
	c.Buses[0].LoadMW[0]++
	if err := load(c); err != nil {
		t.Errorf("with another load: %v", err)
	}
	c.Reservoirs[0].Name = "Sea"
	if err := load(c); err == nil || !strings.Contains(err.Error(), "reservoirs") {
		t.Errorf("with another reservoir: got %v", err)
	}
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		_, err := Train(context.Background(), world, readShipped(t, "brazil4"), Options{Warm: p})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "other stages or reservoirs") {
		t.Errorf("with another case: got %v", err)
	}
}

// Memory for seeds is that of as many iterations as they need, before the first; a training that resumes has room for
// them and the cuts of its iterations at once.
func TestMemoryHasRoomForSeeds(t *testing.T) {
	c := readShipped(t, "toy")
	const passes, seeds, iterations = 2, 5, 4
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		m := newCutMemory(world, newPool(c.Stages, c.states()), passes, iterations, seeds)
		add := func(m *cutMemory, n int, value float64) error {
			for t := range m.pool.Stages() {
				if err := m.add(t, slices.Repeat([]float64{value}, 2*n)); err != nil {
					return err
				}
			}
			return nil
		}
		m.first = 3 * m.each() // the smallest that holds the seeds
		if err := m.reserve(-1); err != nil {
			return err
		}
		if err := add(m, seeds, 7); err != nil {
			return err
		}
		for i := range iterations {
			if err := m.reserve(i); err != nil {
				return err
			}
			if err := add(m, passes, float64(i)); err != nil {
				return err
			}
		}
		next := newCutMemory(world, newPool(c.Stages, c.states()), passes, iterations, seeds)
		if err := next.reserveFirst(2); err != nil {
			return err
		}
		if err := add(next, seeds+2*passes, 1); err != nil {
			return err
		}
		if got, parts := next.pool.Len(0), len(next.regions); got != seeds+2*passes || parts != 1 {
			t.Errorf("%d cuts in %d regions, want %d in 1", got, parts, seeds+2*passes)
		}
		if err := m.close(); err != nil {
			return err
		}
		return next.close()
	})
	if err != nil {
		t.Error(err)
	}
}

// A case of one stage has no cuts, and neither has its policy.
func TestPolicyWithoutListsHasNoSeeds(t *testing.T) {
	if n := mostSeeds(new(Pool)); n != 0 {
		t.Errorf("%d cuts", n)
	}
}
