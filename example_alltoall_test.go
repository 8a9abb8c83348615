package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleAlltoall() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := make([]int, world.Size())
		for to := range send {
			send[to] = 10*world.Rank() + to
		}
		recv := make([]int, world.Size())
		if err := cohort.Alltoall(world, send, recv); err != nil {
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
	// [2 12 22 32]
}

func ExampleAlltoallv() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		// Rank i sends j elements to rank j, and so receives i from each.
		me := world.Rank()
		send, recv := make([]int, 0+1+2+3), make([]int, 4*me)
		scounts, sdispls := []int{0, 1, 2, 3}, []int{0, 0, 1, 3}
		rcounts, rdispls := []int{me, me, me, me}, []int{0, me, 2 * me, 3 * me}
		for i := range send {
			send[i] = me
		}
		if err := cohort.Alltoallv(world, send, scounts, sdispls, recv, rcounts, rdispls); err != nil {
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
	// [0 0 1 1 2 2 3 3]
}

// Each rank has the numbers of its tens, and every number goes to the rank that its last digit names.
func ExampleAlltoallvAppend() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		numbers := [][]int{{0, 1, 3}, {10, 11, 12}, {21, 23}, {30}}[world.Rank()] // sorted by the last digit
		scounts := make([]int, world.Size())
		for _, x := range numbers {
			scounts[x%10]++
		}
		mine, rcounts, err := cohort.AlltoallvAppend(world, nil, numbers, scounts)
		if err == nil && world.Rank() == 1 {
			fmt.Println(mine, rcounts)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [1 11 21] [1 1 1 0]
}
