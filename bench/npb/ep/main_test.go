package main

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

func TestLogIsLogarithm(t *testing.T) {
	numbers := make([]float64, 100_000)
	random := seed
	random.Fill(numbers)
	for i := range 127 { // the ends of the table's intervals, and their neighbors
		x := 0.5 + float64(i+1)/256
		numbers = append(numbers, math.Nextafter(x, 0), x, math.Nextafter(x, 1), x*0x1p-300)
	}
	for _, x := range append(numbers, 1, 0x1p-92) {
		if got, want := log(x), math.Log(x); math.Abs(got-want) > 0x1p-51*max(1, math.Abs(want)) {
			t.Fatalf("log(%v) is %v, want %v", x, got, want)
		}
	}
}

// A rejected pair is dropped, and the pairs that are kept stay in order.
func TestAcceptKeepsPairsInTheCircle(t *testing.T) {
	random := npb.Seed
	numbers := make([]float64, 1000)
	random.Fill(numbers)
	var want []float64
	for i := 0; i < len(numbers); i += 2 {
		if x, y := 2*numbers[i]-1, 2*numbers[i+1]-1; x*x+y*y <= 1 {
			want = append(want, x, y)
		}
	}
	got := numbers[:accept(numbers)]
	if len(got) != len(want) || len(want) == len(numbers) {
		t.Fatalf("%d of %d numbers are kept, want %d", len(got), len(numbers), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("number %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// Batches of pairs need not divide evenly, and the sums have the same bits on any number of ranks.
func TestAnyNumberOfRanksGivesTheSameBits(t *testing.T) {
	var alone []npb.Check
	for _, n := range []int{1, 3, 5} {
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			var clock npb.Clock
			result, err := run(world, classes["S"], &clock)
			if err != nil || world.Rank() > 0 {
				return err
			}
			if n == 1 {
				alone = result.Checks
			}
			if !result.Verified() || !slices.Equal(result.Checks, alone) {
				t.Errorf("%d ranks: %+v, one: %+v", n, result.Checks, alone)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
