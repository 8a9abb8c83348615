package main

import (
	"math"

	"github.com/cohort-hpc/cohort"
)

// reduce adds a vector of ones to each rank's vector, which is 1 at first, and the vectors of all ranks to one on
// rank 0.
func reduce(world *cohort.Comm, p params) (work, seconds float64, err error) {
	mine, sum := make([]float64, p.size), make([]float64, p.size)
	for i := range mine {
		mine[i] = 1
	}
	seconds, err = repeat(world, p.iterations, func() error {
		for i := range mine {
			mine[i]++
		}
		return cohort.Reduce(world, mine, sum, cohort.Sum, 0)
	})
	if err != nil {
		return 0, 0, err
	}
	off, want := 0.0, float64(world.Size()*(p.iterations+2))
	if world.Rank() == 0 {
		for _, x := range sum {
			off = max(off, math.Abs(x/want-1))
		}
	}
	return float64(2*world.Size()-1) * float64(p.size), seconds, verify(world, off)
}
