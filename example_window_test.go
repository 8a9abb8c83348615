package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleAllocateShared() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		// All ranks of a shared window run on one node.
		node, err := world.SplitShared()
		if err != nil {
			return err
		}
		w, err := cohort.AllocateShared[int](node, 2)
		if err != nil {
			return err
		}
		defer w.Close()
		mine, err := w.Local()
		if err != nil {
			return err
		}
		for i := range mine {
			mine[i] = 10*node.Rank() + i
		}
		if err := w.Fence(); err != nil { // all have written
			return err
		}
		if node.Rank() == 0 {
			for rank := range node.Size() {
				part, err := w.Remote(rank)
				if err != nil {
					return err
				}
				fmt.Println(part)
			}
		}
		return w.Fence() // all have read
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [0 1]
	// [10 11]
	// [20 21]
	// [30 31]
}

func ExampleWindow_Size() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		// Each rank asks for as many elements as it needs.
		w, err := cohort.AllocateShared[float64](world, 2*world.Rank())
		if err != nil {
			return err
		}
		defer w.Close()
		if world.Rank() == 0 {
			for rank := range world.Size() {
				fmt.Println("rank", rank, "has", w.Size(rank), "elements")
			}
		}
		return world.Barrier()
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 0 has 0 elements
	// rank 1 has 2 elements
	// rank 2 has 4 elements
	// rank 3 has 6 elements
}

func ExampleNewSharedRegion() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		const n = 1000
		table, err := cohort.NewSharedRegion[float64](world, n)
		if err != nil {
			return err
		}
		defer table.Close()
		// The ranks of each node fill its copy together.
		node := table.Node()
		lo, hi := n*node.Rank()/node.Size(), n*(node.Rank()+1)/node.Size()
		part, err := table.Range(lo, hi)
		if err != nil {
			return err
		}
		for i := range part {
			part[i] = float64(lo + i)
		}
		if err := table.Fence(); err != nil {
			return err
		}
		all, err := table.Slice()
		if err != nil {
			return err
		}
		if world.Rank() == 3 {
			fmt.Println(len(all), all[0], all[n-1])
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1000 0 999
}
