package main

import (
	"context"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// Both directions of a transform are the sums of its definition.
func TestTransformIsTheDefinition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 128; n *= 2 {
		f := newFourier(n)
		x := make([]lane, n)
		for i := range x {
			for j := range x[i] {
				x[i][j] = complex(random.Float64()-0.5, random.Float64()-0.5)
			}
		}
		copy(f.lanes, x)
		f.transform()
		for sign, order := range map[float64][]int{1: f.backward, -1: f.forward} {
			for i, k := range order {
				for j := range width {
					want := complex128(0)
					for m := range x {
						want += x[m][j] * cmplx.Exp(complex(0, sign*2*math.Pi*float64(m*k%n)/float64(n)))
					}
					if got := f.lanes[i][j]; cmplx.Abs(got-want) > 1e-13*float64(n) {
						t.Fatalf("length %d, sign %v, sequence %d: frequency %d is %v, want %v", n, sign, j, k, got, want)
					}
				}
			}
		}
	}
}

// A forward transform followed by one backward gives the numbers back, times their number. With time 0 nothing decays.
func TestSolveReversesForward(t *testing.T) {
	p := problem{nx: 32, ny: 16, nz: 64}
	for _, ranks := range []int{1, 2, 4, 16} {
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			s := newSolver(world, p, new(npb.Clock))
			s.fill()
			want := slices.Clone(s.planes)
			if err := s.forward(); err != nil {
				return err
			}
			if err := s.solve(0); err != nil {
				return err
			}
			for i, got := range s.planes {
				if cmplx.Abs(got/complex(float64(p.nx*p.ny*p.nz), 0)-want[i]) > 1e-13 {
					return fmt.Errorf("%d ranks: number %d is %v, want %v", ranks, i, got, want[i])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Checksums have the same bits on any number of ranks.
func TestChecksumsDoNotDependOnRanks(t *testing.T) {
	var alone []npb.Check
	for _, ranks := range []int{1, 2, 4, 8} {
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			result, err := run(world, classes["S"], new(npb.Clock))
			if err != nil || world.Rank() > 0 {
				return err
			}
			if ranks == 1 {
				alone = result.Checks
			}
			if !result.Verified() || !slices.Equal(result.Checks, alone) {
				t.Errorf("%d ranks give %v, one gives %v", ranks, result.Checks, alone)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunRefusesRanksThatDoNotDivideTheGrid(t *testing.T) {
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		if _, err := run(world, classes["S"], new(npb.Clock)); err == nil {
			t.Error("three ranks got no error")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
