// Command pi integrates 4/(1+x²) from 0 to 1 by the midpoint rule. It shows how to make a
// floating-point result that has the same bits for any number of ranks: the work is cut into a
// fixed number of blocks, whoever owns a block adds it up, and the blocks are added in order.
//
//	go run ./cmd/cohort run -n 4 ./examples/pi
package main

import (
	"context"
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
)

const (
	blocks    = 1000
	perBlock  = 2000
	intervals = blocks * perBlock
)

func main() { cohort.Main(report) }

func report(_ context.Context, world *cohort.Comm) error {
	pi, err := integrate(world)
	if err == nil && world.Rank() == 0 {
		fmt.Printf("pi is about %.16f, off by %.1e\n", pi, math.Abs(pi-math.Pi))
	}
	return err
}

// integrate returns the integral on every rank. All ranks call it.
func integrate(world *cohort.Comm) (float64, error) {
	// Each rank fills in its own blocks and leaves the others 0. Adding zeros changes no bit,
	// so the sum over the ranks is exact: every block arrives as its owner computed it.
	mine := make([]float64, blocks)
	for b := world.Rank(); b < blocks; b += world.Size() {
		mine[b] = block(b)
	}
	all := make([]float64, blocks)
	if err := cohort.Allreduce(world, mine, all, cohort.Sum); err != nil {
		return 0, err
	}
	sum := 0.0
	for _, s := range all {
		sum += s
	}
	return sum, nil
}

// block returns the integral over the b-th block of intervals.
func block(b int) float64 {
	const h = 1.0 / intervals
	sum := 0.0
	for i := b * perBlock; i < (b+1)*perBlock; i++ {
		x := h * (float64(i) + 0.5)
		sum += 4 / (1 + x*x)
	}
	return sum * h
}
