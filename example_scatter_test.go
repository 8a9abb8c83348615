package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleScatter() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		var send []int
		if world.Rank() == 0 {
			send = []int{0, 1, 10, 11, 20, 21, 30, 31}
		}
		recv := make([]int, 2)
		if err := cohort.Scatter(world, send, recv, 0); err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println(recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [20 21]
}

func ExampleScatterv() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		var send, counts, displs []int
		if world.Rank() == 0 {
			send = []int{1, 22, 22, 333, 333, 333}
			counts, displs = []int{0, 1, 2, 3}, []int{0, 0, 1, 3}
		}
		recv := make([]int, world.Rank()) // the length in root's counts
		if err := cohort.Scatterv(world, send, counts, displs, recv, 0); err != nil {
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
	// [333 333 333]
}
