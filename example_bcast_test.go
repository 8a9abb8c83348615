package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleComm_Barrier() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		if world.Rank() == 3 {
			fmt.Println("rank 3 is here")
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("all are here")
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 3 is here
	// all are here
}

func ExampleComm_Ibarrier() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		req, err := world.Ibarrier()
		if err != nil {
			return err
		}
		// Work that needs no other rank goes here.
		if _, err := req.Wait(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("all are here")
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// all are here
}

func ExampleBcast() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		buf := make([]int, 3)
		if world.Rank() == 2 {
			buf = []int{7, 8, 9}
		}
		if err := cohort.Bcast(world, buf, 2); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(buf)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [7 8 9]
}
