package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleScan() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send, recv := []int{world.Rank() + 1}, make([]int, 1)
		if err := cohort.Scan(world, send, recv, cohort.Prod); err != nil {
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
	// [24]
}

func ExampleExscan() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		// Where does each rank's part begin, if rank r has r+1 elements?
		send, recv := []int{world.Rank() + 1}, make([]int, 1)
		if err := cohort.Exscan(world, send, recv, cohort.Sum); err != nil {
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
	// [6]
}
