// Command ep is kernel EP of the NAS Parallel Benchmarks, "embarrassingly parallel": pairs of normally distributed
// numbers by the acceptance-rejection method, their sums, and how many fall into each square ring. Ranks communicate at
// the end only. Any number of them is allowed, and gives the same bits.
//
//	go run ./cmd/cohort run -n 2 ./bench/npb/ep -class A
package main

import (
	"fmt"
	"math"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// problem is 2^m pairs, and the sums that their x and y have.
type problem struct {
	m          int
	sumX, sumY float64
}

var classes = map[string]problem{
	"S": {24, -3.247834652034740e3, -6.958407078382297e3},
	"W": {25, -2.863319731645753e3, -6.320053679109499e3},
	"A": {28, -4.295875165629892e3, -1.580732573678431e4},
	"B": {30, 4.033815542441498e4, -2.660669192809235e4},
	"C": {32, 4.764367927995374e4, -8.084072988043731e4},
}

const (
	seed  npb.Random = 271828183
	batch            = 1 << 16 // pairs whose random numbers are in memory at a time
	rings            = 10
)

// tally has how many pairs are in each ring, and the sums of X and of Y in units of 2^-32. The sums of batches are cut to
// whole units, so that the order in which they are added does not matter.
type tally [rings + 2]int64

const (
	sumX = rings
	sumY = rings + 1
	unit = 1 << 32
)

func main() { npb.Main("EP", classes, run) }

func run(world *cohort.Comm, p problem, clock *npb.Clock) (npb.Result, error) {
	var t tally
	if err := t.reduce(world, clock); err != nil { // of zeros, not timed: it brings the code into memory
		return npb.Result{}, err
	}
	if err := clock.Start(world); err != nil {
		return npb.Result{}, err
	}
	numbers := make([]float64, 2*batch)
	lo, hi := cohort.Block(1<<p.m/batch, world.Size(), world.Rank())
	random := seed
	random.Skip(uint64(lo) * 2 * batch)
	for range hi - lo {
		random.Fill(numbers)
		x, y := gaussian(numbers, (*[rings]int64)(t[:]))
		t[sumX] += int64(x * unit)
		t[sumY] += int64(y * unit)
	}
	if err := t.reduce(world, clock); err != nil {
		return npb.Result{}, err
	}
	clock.Stop()
	accepted := int64(0)
	for _, n := range t[:rings] {
		accepted += n
	}
	return npb.Result{
		Size:       fmt.Sprintf("2^%d pairs", p.m),
		Iterations: 1,
		Operations: float64(int64(2) << p.m),
		Checks: []npb.Check{
			npb.Near("sum of X", float64(t[sumX])/unit, p.sumX, 1e-8),
			npb.Near("sum of Y", float64(t[sumY])/unit, p.sumY, 1e-8),
			npb.Near("share in the circle", float64(accepted)/float64(int64(1)<<p.m), math.Pi/4, 1e-3),
		},
	}, nil
}

// gaussian makes pairs of normally distributed numbers from pairs of uniform ones, which it overwrites. It returns their
// sums, and counts the pairs (X, Y) by the integral part of max(|X|, |Y|).
func gaussian(uniform []float64, counts *[rings]int64) (sumX, sumY float64) {
	pairs := uniform[:accept(uniform)]
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		x, y := pairs[0], pairs[1]
		t := x*x + y*y
		f := math.Sqrt(-2 * log(t) / t)
		x, y = x*f, y*f
		counts[int(max(math.Abs(x), math.Abs(y)))]++
		sumX += x
		sumY += y
	}
	return sumX, sumY
}

// accept moves the pairs (2a-1, 2b-1) within the unit circle to the front, and returns their length. No branch depends on
// a pair, because the processor would predict every fifth wrongly.
func accept(uniform []float64) (n int) {
	for i := 0; i+1 < len(uniform); i += 2 {
		x, y := 2*uniform[i]-1, 2*uniform[i+1]-1
		uniform[n], uniform[n+1] = x, y
		step := 0
		if x*x+y*y <= 1 {
			step = 2
		}
		n += step
	}
	return n
}

// reduce adds up those of all ranks.
func (t *tally) reduce(world *cohort.Comm, clock *npb.Clock) error {
	defer clock.Communication(time.Now())
	return cohort.Allreduce(world, t[:], t[:], cohort.Sum)
}
