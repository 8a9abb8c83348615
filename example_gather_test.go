package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleGather() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := []int{world.Rank(), 10 * world.Rank()}
		var recv []int
		if world.Rank() == 0 {
			recv = make([]int, 2*world.Size())
		}
		if err := cohort.Gather(world, send, recv, 0); err != nil {
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
	// [0 0 1 10 2 20 3 30]
}

// string4 is an array. Elements may have any type of fixed size without pointers.
type string4 [2]byte

func ExampleGatherv() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := make([]string4, world.Rank()) // rank r sends r elements
		for i := range send {
			send[i] = string4{'r', byte('0' + world.Rank())}
		}
		var recv []string4
		var counts, displs []int
		if world.Rank() == 0 {
			recv = make([]string4, 6)
			counts, displs = []int{0, 1, 2, 3}, []int{0, 5, 3, 0} // the block of the last rank comes first
		}
		if err := cohort.Gatherv(world, send, recv, counts, displs, 0); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Printf("%s\n", recv)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [r3 r3 r3 r2 r2 r1]
}

func ExampleAllgather() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := []int{world.Rank() * world.Rank()}
		recv := make([]int, world.Size())
		if err := cohort.Allgather(world, send, recv); err != nil {
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
	// [0 1 4 9]
}

// In place, each rank's block is already where it belongs.
func ExampleAllgather_inPlace() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		buf := make([]int, world.Size())
		buf[world.Rank()] = world.Rank() + 1
		if err := cohort.Allgather(world, buf, buf); err != nil {
			return err
		}
		if world.Rank() == 3 {
			fmt.Println(buf)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [1 2 3 4]
}

func ExampleAllgatherv() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		counts, displs := []int{1, 2, 1, 2}, []int{0, 1, 3, 4}
		send := make([]int, counts[world.Rank()])
		for i := range send {
			send[i] = world.Rank()
		}
		recv := make([]int, 6)
		if err := cohort.Allgatherv(world, send, recv, counts, displs); err != nil {
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
	// [0 1 1 2 3 3]
}

// Nobody knows beforehand how many numbers the others have found.
func ExampleGathervAppend() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		var found []int // the rank's share of the squares below 100
		for i := world.Rank(); i*i < 100; i += world.Size() {
			found = append(found, i*i)
		}
		all, counts, err := cohort.GathervAppend(world, nil, found, 0)
		if err == nil && world.Rank() == 0 {
			fmt.Println(all, counts)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [0 16 64 1 25 81 4 36 9 49] [3 3 2 2]
}

func ExampleAllgathervAppend() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		name := []byte("abcd"[:world.Rank()+1])
		all, counts, err := cohort.AllgathervAppend(world, nil, name)
		if err == nil && world.Rank() == 3 {
			fmt.Printf("%s %v\n", all, counts)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// aababcabcd [1 2 3 4]
}
