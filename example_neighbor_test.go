package cohort_test

import (
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// Four ranks in a ring.
func ExampleNeighborAllgather() {
	four(func(world *cohort.Comm) error {
		ring, err := world.CartCreate([]int{4}, []bool{true}, false)
		if err != nil {
			return err
		}
		send, recv := []int{10 * ring.Rank()}, make([]int, 2)
		if err := cohort.NeighborAllgather(ring, send, recv); err != nil {
			return err
		}
		if ring.Rank() == 0 {
			fmt.Println("from below and above:", recv)
		}
		return nil
	})
	// Output:
	// from below and above: [30 10]
}

// Ranks 1 to 3 send to rank 0, each as many elements as its number.
func ExampleNeighborAllgatherv() {
	four(func(world *cohort.Comm) error {
		var sources, destinations, counts, displs []int
		var send, recv []int
		if world.Rank() == 0 {
			sources, counts, displs = []int{1, 2, 3}, []int{1, 2, 3}, []int{0, 1, 3}
			recv = make([]int, 6)
		} else {
			destinations = []int{0}
			for i := range world.Rank() {
				send = append(send, 10*world.Rank()+i)
			}
		}
		star, err := world.GraphCreate(sources, destinations, false)
		if err != nil {
			return err
		}
		if err := cohort.NeighborAllgatherv(star, send, recv, counts, displs); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(recv)
		}
		return nil
	})
	// Output:
	// [10 20 21 30 31 32]
}

// A grid of 2 by 2 ranks that is periodic from left to right: a rank sends each neighbor a number that says
// where to.
func ExampleNeighborAlltoall() {
	four(func(world *cohort.Comm) error {
		grid, err := world.CartCreate([]int{2, 2}, []bool{false, true}, false)
		if err != nil {
			return err
		}
		const up, down, left, right = 1, 2, 3, 4
		me := 10 * grid.Rank()
		send, recv := []int{me + up, me + down, me + left, me + right}, make([]int, 4)
		if err := cohort.NeighborAlltoall(grid, send, recv); err != nil {
			return err
		}
		if grid.Rank() == 0 {
			// Nothing comes from above. Rank 1 is on the left and on the right: what comes from the left
			// was sent to the right.
			fmt.Println(recv)
		}
		return nil
	})
	// Output:
	// [0 21 14 13]
}

// Each rank sends the next one in a ring as many elements as its number.
func ExampleNeighborAlltoallv() {
	four(func(world *cohort.Comm) error {
		me := world.Rank()
		next, prev := (me+1)%4, (me+3)%4
		ring, err := world.GraphCreate([]int{prev}, []int{next}, false)
		if err != nil {
			return err
		}
		send, recv := make([]int, me), make([]int, prev)
		for i := range send {
			send[i] = 10*me + i
		}
		err = cohort.NeighborAlltoallv(ring, send, []int{me}, []int{0}, recv, []int{prev}, []int{0})
		if me == 0 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [30 31 32]
}

// Rank 0 gives out work to all others.
func ExampleComm_GraphCreate() {
	four(func(world *cohort.Comm) error {
		sources, destinations := []int{0}, []int(nil)
		if world.Rank() == 0 {
			sources, destinations = nil, []int{1, 2, 3}
		}
		g, err := world.GraphCreate(sources, destinations, false)
		if err != nil {
			return err
		}
		if g.Rank() == 0 {
			fmt.Println("from", g.Sources(), "to", g.Destinations())
		}
		return nil
	})
	// Output:
	// from [] to [1 2 3]
}

// The rows of a grid.
func ExampleCart_Sub() {
	four(func(world *cohort.Comm) error {
		grid, err := world.CartCreate([]int{2, 2}, []bool{false, true}, false)
		if err != nil {
			return err
		}
		row, err := grid.Sub([]bool{false, true})
		if err != nil {
			return err
		}
		sum, err := cohort.AllreduceOne(row.Comm, grid.Rank(), cohort.Sum)
		if grid.Rank() == 3 {
			fmt.Println("ranks in a row:", row.Size(), "sum of their numbers in the grid:", sum)
		}
		return err
	})
	// Output:
	// ranks in a row: 2 sum of their numbers in the grid: 5
}

// Every rank sends to the rank below it in a column of the grid. There is none below the last row.
func ExampleCart_Shift() {
	four(func(world *cohort.Comm) error {
		grid, err := world.CartCreate([]int{2, 2}, []bool{false, true}, false)
		if err != nil {
			return err
		}
		above, below, err := grid.Shift(0, 1)
		if err != nil {
			return err
		}
		got := []int{-1}
		_, err = cohort.Sendrecv(grid.Comm, []int{grid.Rank()}, below, 0, got, above, 0)
		if grid.Rank() == 3 {
			fmt.Println("rank 3 received from rank", got[0], "and sends to ProcNull:", below == cohort.ProcNull)
		}
		return err
	})
	// Output:
	// rank 3 received from rank 1 and sends to ProcNull: true
}

func ExampleDimsCreate() {
	dims := []int{0, 2, 0}
	err := cohort.DimsCreate(24, dims)
	fmt.Println(dims, err)
	// Output:
	// [4 2 3] <nil>
}
