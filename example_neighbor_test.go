package cohort_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/topo"
)

func ExampleComm_CartCreate() {
	four(func(world *cohort.Comm) error {
		grid, err := world.CartCreate([]int{2, 2}, []bool{false, true}, false)
		if err != nil {
			return err
		}
		if grid.Rank() == 3 {
			n := grid.Neighbors()
			fmt.Println("at", grid.MyCoords(), "above", n[0].Lower, "below", n[0].Upper == cohort.ProcNull, "left and right", n[1].Lower, n[1].Upper)
		}
		return nil
	})
	// Output:
	// at [1 1] above 1 below true left and right 2 2
}

// Four ranks in a ring.
func ExampleNeighborAllgather() {
	four(func(world *cohort.Comm) error {
		ring, err := world.CartCreate([]int{4}, []bool{true}, false)
		if err != nil {
			return err
		}
		send, recv := []int{10 * ring.Rank()}, make([]int, 2)
		err = cohort.NeighborAllgather(ring, send, recv)
		if err == nil && ring.Rank() == 0 {
			fmt.Println("from below and above:", recv)
		}
		return err
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
		err = cohort.NeighborAllgatherv(star, send, recv, counts, displs)
		if err == nil && world.Rank() == 0 {
			fmt.Println(recv)
		}
		return err
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
		err = cohort.NeighborAlltoall(grid, send, recv)
		if err == nil && grid.Rank() == 0 {
			// Nothing comes from above. Rank 1 is on the left and on the right: what comes from the left
			// was sent to the right.
			fmt.Println(recv)
		}
		return err
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

func ExampleComm_Topology() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		where := world.Topology()
		if world.Rank() == 0 { // fmt.Println(where) prints all of it, with the node's name
			fmt.Println(len(where.Hosts), where.Hosts[0].Ranks, where.Backend)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1 [0 1 2 3] local
	// <nil>
}

// A program that pins threads adds them to the line.
func ExampleTopology_Summary() {
	where := cohort.Topology{
		Backend: "mpi", Library: "MPICH 4.0.2", Scheduler: "Slurm job 4711.0",
		Hosts: []cohort.Host{{Name: "n01", Ranks: []int{0, 1}}, {Name: "n02", Ranks: []int{2, 3}}},
	}
	s := where.Summary()
	s.Threads, s.Policy = 8, topo.Cores
	fmt.Println(s)
	// Output: 4 ranks on 2 nodes: n01: 0-1, n02: 2-3; 8 threads per rank pinned to cores; mpi (MPICH 4.0.2); Slurm job 4711.0
}

// The other forms of the neighborhood collectives, in a ring of four ranks.
func ExampleIneighborAllgather() {
	four(func(world *cohort.Comm) error {
		ring, err := world.CartCreate([]int{4}, []bool{true}, false)
		if err != nil {
			return err
		}
		r := ring.Rank()
		mine, both, ones, got := []int{r}, []int{10 * r, 10*r + 1}, []int{1, 1}, make([]int, 2)
		return errors.Join(
			show(r, "IneighborAllgather", got, waited(cohort.IneighborAllgather(ring, mine, got))),
			show(r, "IneighborAllgatherv", got, waited(cohort.IneighborAllgatherv(ring, mine, got, ones, nil))),
			show(r, "IneighborAlltoall", got, waited(cohort.IneighborAlltoall(ring, both, got))),
			show(r, "IneighborAlltoallv", got, waited(cohort.IneighborAlltoallv(ring, both, ones, nil, got, ones, nil))),
			show(r, "NeighborAllgatherInit", got, ranOnce(cohort.NeighborAllgatherInit(ring, mine, got))),
			show(r, "NeighborAllgathervInit", got, ranOnce(cohort.NeighborAllgathervInit(ring, mine, got, ones, nil))),
			show(r, "NeighborAlltoallInit", got, ranOnce(cohort.NeighborAlltoallInit(ring, both, got))),
			show(r, "NeighborAlltoallvInit", got, ranOnce(cohort.NeighborAlltoallvInit(ring, both, ones, nil, got, ones, nil))))
	})
	// Output:
	// IneighborAllgather [2 0]
	// IneighborAllgatherv [2 0]
	// IneighborAlltoall [21 0]
	// IneighborAlltoallv [21 0]
	// NeighborAllgatherInit [2 0]
	// NeighborAllgathervInit [2 0]
	// NeighborAlltoallInit [21 0]
	// NeighborAlltoallvInit [21 0]
}

func ExampleCart_Coords() {
	four(func(world *cohort.Comm) error {
		grid, err := world.CartCreate([]int{2, 2}, []bool{false, true}, false)
		if err != nil || grid.Rank() > 0 {
			return err
		}
		at, err := grid.Coords(2)
		if err != nil {
			return err
		}
		last, err := grid.CartRank([]int{1, -1}) // the second dimension is periodic: -1 is 1
		fmt.Println(grid.Dims(), grid.Periods(), "rank 2 is at", at, "and at [1 1] is rank", last)
		return err
	})
	// Output:
	// [2 2] [false true] rank 2 is at [1 0] and at [1 1] is rank 3
}
