package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleReduce() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := []int{world.Rank(), 1}
		recv := make([]int, 2) // used on the root only, and may be nil elsewhere
		if err := cohort.Reduce(world, send, recv, cohort.Sum, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [6 4]
}

func ExampleAllreduce() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := []float64{float64(world.Rank()), 0.5 - float64(world.Rank())}
		recv := make([]float64, 2)
		if err := cohort.Allreduce(world, send, recv, cohort.Max); err != nil {
			return err
		}
		if world.Rank() == 3 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [3 0.5]
}

// The same slice as send and recv reduces in place.
func ExampleAllreduce_inPlace() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		buf := []int{1 << world.Rank()}
		if err := cohort.Allreduce(world, buf, buf, cohort.Bor); err != nil {
			return err
		}
		if world.Rank() == 1 {
			fmt.Println(buf)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [15]
}

func ExampleIallreduce() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send, recv := []int{world.Rank()}, make([]int, 1)
		req, err := cohort.Iallreduce(world, send, recv, cohort.Sum)
		if err != nil {
			return err
		}
		// Work that leaves send and recv alone goes here.
		if _, err := req.Wait(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [6]
}

func ExampleAllreduceInit() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send, recv := make([]int, 1), make([]int, 1)
		sum, err := cohort.AllreduceInit(world, send, recv, cohort.Sum)
		if err != nil {
			return err
		}
		defer sum.Close()
		for i := range 3 {
			send[0] = i * world.Rank()
			if err := sum.Start(); err != nil {
				return err
			}
			if _, err := sum.Wait(); err != nil {
				return err
			}
			if world.Rank() == 0 {
				fmt.Println(recv)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [0]
	// [6]
	// [12]
}

func ExampleReduceScatterBlock() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := []int{1, 2, 3, 4, 5, 6, 7, 8} // two elements of the result for each rank
		recv := make([]int, 2)
		if err := cohort.ReduceScatterBlock(world, send, recv, cohort.Sum); err != nil {
			return err
		}
		if world.Rank() == 1 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [12 16]
}

func ExampleReduceScatter() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		counts := []int{0, 1, 2, 3}
		send := []int{1, 2, 3, 4, 5, 6}
		recv := make([]int, counts[world.Rank()])
		if err := cohort.ReduceScatter(world, send, recv, counts, cohort.Sum); err != nil {
			return err
		}
		if world.Rank() == 3 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [16 20 24]
}

// A rank combines what two threads have counted before it takes part in the reduction.
func ExampleReduceLocal() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		me := world.Rank()
		first, second := []int{me, 1}, []int{10 * me, 1}
		if err := cohort.ReduceLocal(first, second, cohort.Sum); err != nil {
			return err
		}
		if err := cohort.Allreduce(world, second, second, cohort.Sum); err != nil {
			return err
		}
		if me == 0 {
			fmt.Println(second)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [66 8]
}
