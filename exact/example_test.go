package exact_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/exact"
)

// four runs a function on four ranks in this process.
func four(body func(world *cohort.Comm) error) {
	if err := cohort.Run(context.Background(), 4, body); err != nil {
		fmt.Println(err)
	}
}

// Added as float64 in the order of the ranks, these numbers give 0: 1e16 + 1 rounds to 1e16.
func ExampleSum() {
	four(func(world *cohort.Comm) error {
		xs := [][]float64{{1e16, 1}, {}, {1}, {-1e16}}
		sum, err := exact.Sum(world, xs[world.Rank()])
		if err == nil && world.Rank() == 0 {
			fmt.Println(sum)
		}
		return err
	})
	// Output:
	// 2
}

func ExampleDot() {
	four(func(world *cohort.Comm) error {
		x := []float64{1e200, 1}
		y := []float64{1e200 * float64(1-world.Rank()%2*2), 0.25} // the large products cancel
		dot, err := exact.Dot(world, x, y)
		if err == nil && world.Rank() == 0 {
			fmt.Println(dot)
		}
		return err
	})
	// Output:
	// 1
}

// Eight gradients have the same mean on any number of ranks.
func ExampleAccumulator() {
	four(func(world *cohort.Comm) error {
		sums := exact.New[float32](3)
		for batch := world.Rank(); batch < 8; batch += world.Size() {
			g := float32(batch)
			if err := sums.Add([]float32{g, 0.1, -g}); err != nil {
				return err
			}
		}
		recv := make([]float32, 3)
		err := sums.Allreduce(world, recv)
		if err == nil && world.Rank() == 0 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [28 0.8 -28]
}

// Two goroutines add to accumulators of their own.
func ExampleAccumulator_Merge() {
	four(func(world *cohort.Comm) error {
		a, b := exact.New[float64](1), exact.New[float64](1)
		done := make(chan error)
		go func() { done <- b.Add([]float64{1e-30}) }()
		err := a.Add([]float64{1e30})
		if e := <-done; err == nil {
			err = e
		}
		if err == nil {
			err = a.Add([]float64{-1e30})
		}
		if err == nil {
			err = a.Merge(b)
		}
		recv := make([]float64, 1)
		if err == nil {
			err = a.Allreduce(world, recv)
		}
		if err == nil && world.Rank() == 0 {
			fmt.Println(recv[0])
		}
		return err
	})
	// Output:
	// 4e-30
}
