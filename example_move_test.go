package cohort_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleAlltoall() {
	four(func(world *cohort.Comm) error {
		send := make([]int, world.Size())
		for to := range send {
			send[to] = 10*world.Rank() + to
		}
		recv := make([]int, world.Size())
		err := cohort.Alltoall(world, send, recv)
		if err == nil && world.Rank() == 2 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [2 12 22 32]
}

func ExampleAlltoallv() {
	four(func(world *cohort.Comm) error {
		// Rank i sends j elements to rank j, and so receives i from each.
		me := world.Rank()
		send, recv := make([]int, 0+1+2+3), make([]int, 4*me)
		scounts, sdispls := []int{0, 1, 2, 3}, []int{0, 0, 1, 3}
		rcounts, rdispls := []int{me, me, me, me}, []int{0, me, 2 * me, 3 * me}
		for i := range send {
			send[i] = me
		}
		err := cohort.Alltoallv(world, send, scounts, sdispls, recv, rcounts, rdispls)
		if err == nil && world.Rank() == 2 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [0 0 1 1 2 2 3 3]
}

// Each rank has the numbers of its tens, and every number goes to the rank that its last digit names.
func ExampleAlltoallvAppend() {
	four(func(world *cohort.Comm) error {
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
	// Output:
	// [1 11 21] [1 1 1 0]
}

func ExampleComm_Barrier() {
	four(func(world *cohort.Comm) error {
		if world.Rank() == 3 {
			fmt.Println("rank 3 is here")
		}
		err := world.Barrier()
		if err == nil && world.Rank() == 0 {
			fmt.Println("all are here")
		}
		return err
	})
	// Output:
	// rank 3 is here
	// all are here
}

func ExampleComm_Ibarrier() {
	four(func(world *cohort.Comm) error {
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
	// Output:
	// all are here
}

func ExampleBcast() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		buf := make([]int, 3)
		if world.Rank() == 2 {
			buf = []int{7, 8, 9}
		}
		err := cohort.Bcast(world, buf, 2)
		if err == nil && world.Rank() == 0 {
			fmt.Println(buf)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [7 8 9]
}

func ExampleGather() {
	four(func(world *cohort.Comm) error {
		send := []int{world.Rank(), 10 * world.Rank()}
		var recv []int
		if world.Rank() == 0 {
			recv = make([]int, 2*world.Size())
		}
		err := cohort.Gather(world, send, recv, 0)
		if err == nil && world.Rank() == 0 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [0 0 1 10 2 20 3 30]
}

// string4 is an array. Elements may have any type of fixed size without pointers.
type string4 [2]byte

func ExampleGatherv() {
	four(func(world *cohort.Comm) error {
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
		err := cohort.Gatherv(world, send, recv, counts, displs, 0)
		if err == nil && world.Rank() == 0 {
			fmt.Printf("%s\n", recv)
		}
		return err
	})
	// Output:
	// [r3 r3 r3 r2 r2 r1]
}

func ExampleAllgather() {
	four(func(world *cohort.Comm) error {
		send := []int{world.Rank() * world.Rank()}
		recv := make([]int, world.Size())
		err := cohort.Allgather(world, send, recv)
		if err == nil && world.Rank() == 2 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [0 1 4 9]
}

// In place, each rank's block is already where it belongs.
func ExampleAllgather_inPlace() {
	four(func(world *cohort.Comm) error {
		buf := make([]int, world.Size())
		buf[world.Rank()] = world.Rank() + 1
		err := cohort.Allgather(world, buf, buf)
		if err == nil && world.Rank() == 3 {
			fmt.Println(buf)
		}
		return err
	})
	// Output:
	// [1 2 3 4]
}

func ExampleAllgatherv() {
	four(func(world *cohort.Comm) error {
		counts, displs := []int{1, 2, 1, 2}, []int{0, 1, 3, 4}
		send := make([]int, counts[world.Rank()])
		for i := range send {
			send[i] = world.Rank()
		}
		recv := make([]int, 6)
		err := cohort.Allgatherv(world, send, recv, counts, displs)
		if err == nil && world.Rank() == 1 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [0 1 1 2 3 3]
}

// Nobody knows beforehand how many numbers the others have found.
func ExampleGathervAppend() {
	four(func(world *cohort.Comm) error {
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
	// Output:
	// [0 16 64 1 25 81 4 36 9 49] [3 3 2 2]
}

func ExampleAllgathervAppend() {
	four(func(world *cohort.Comm) error {
		name := []byte("abcd"[:world.Rank()+1])
		all, counts, err := cohort.AllgathervAppend(world, nil, name)
		if err == nil && world.Rank() == 3 {
			fmt.Printf("%s %v\n", all, counts)
		}
		return err
	})
	// Output:
	// aababcabcd [1 2 3 4]
}

func ExampleScatter() {
	four(func(world *cohort.Comm) error {
		var send []int
		if world.Rank() == 0 {
			send = []int{0, 1, 10, 11, 20, 21, 30, 31}
		}
		recv := make([]int, 2)
		err := cohort.Scatter(world, send, recv, 0)
		if err == nil && world.Rank() == 2 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [20 21]
}

func ExampleScatterv() {
	four(func(world *cohort.Comm) error {
		var send, counts, displs []int
		if world.Rank() == 0 {
			send = []int{1, 22, 22, 333, 333, 333}
			counts, displs = []int{0, 1, 2, 3}, []int{0, 0, 1, 3}
		}
		recv := make([]int, world.Rank()) // the length in root's counts
		err := cohort.Scatterv(world, send, counts, displs, recv, 0)
		if err == nil && world.Rank() == 3 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [333 333 333]
}

// show prints what rank 3 has received.
func show(rank int, name string, got []int, err error) error {
	if err == nil && rank == 3 {
		fmt.Println(name, got)
	}
	return err
}

// waited waits for an operation that was just started. A program would compute in between.
func waited(q *cohort.Request, err error) error {
	if err == nil {
		_, err = q.Wait()
	}
	return err
}

// The nonblocking forms of collectives that move data have the arguments of the blocking ones.
func ExampleIgather() {
	four(func(world *cohort.Comm) error {
		r := world.Rank()
		mine, row, ones := []int{r}, []int{10 * r, 10*r + 1, 10*r + 2, 10*r + 3}, []int{1, 1, 1, 1}
		one, all := []int{r}, make([]int, 4)
		return errors.Join(
			show(r, "Ibcast", one, waited(cohort.Ibcast(world, one, 1))),
			show(r, "Igather", all, waited(cohort.Igather(world, mine, all, 3))),
			show(r, "Igatherv", all, waited(cohort.Igatherv(world, mine, all, ones, nil, 3))),
			show(r, "Iallgather", all, waited(cohort.Iallgather(world, mine, all))),
			show(r, "Iallgatherv", all, waited(cohort.Iallgatherv(world, mine, all, ones, nil))),
			show(r, "Iscatter", one, waited(cohort.Iscatter(world, row, one, 0))),
			show(r, "Iscatterv", one, waited(cohort.Iscatterv(world, row, ones, nil, one, 2))),
			show(r, "Ialltoall", all, waited(cohort.Ialltoall(world, row, all))),
			show(r, "Ialltoallv", all, waited(cohort.Ialltoallv(world, row, ones, nil, all, ones, nil))))
	})
	// Output:
	// Ibcast [1]
	// Igather [0 1 2 3]
	// Igatherv [0 1 2 3]
	// Iallgather [0 1 2 3]
	// Iallgatherv [0 1 2 3]
	// Iscatter [3]
	// Iscatterv [23]
	// Ialltoall [3 13 23 33]
	// Ialltoallv [3 13 23 33]
}

// ranOnce runs a persistent operation once. A program would run it many times.
func ranOnce(p *cohort.Persistent, err error) error {
	if err == nil {
		_, err = p.Run()
		err = errors.Join(err, p.Close())
	}
	return err
}

// The persistent forms have the same arguments too.
func ExampleGatherInit() {
	four(func(world *cohort.Comm) error {
		r := world.Rank()
		mine, row, ones := []int{r}, []int{10 * r, 10*r + 1, 10*r + 2, 10*r + 3}, []int{1, 1, 1, 1}
		one, all := []int{r}, make([]int, 4)
		return errors.Join(
			show(r, "BcastInit", one, ranOnce(cohort.BcastInit(world, one, 1))),
			show(r, "GatherInit", all, ranOnce(cohort.GatherInit(world, mine, all, 3))),
			show(r, "GathervInit", all, ranOnce(cohort.GathervInit(world, mine, all, ones, nil, 3))),
			show(r, "AllgatherInit", all, ranOnce(cohort.AllgatherInit(world, mine, all))),
			show(r, "AllgathervInit", all, ranOnce(cohort.AllgathervInit(world, mine, all, ones, nil))),
			show(r, "ScatterInit", one, ranOnce(cohort.ScatterInit(world, row, one, 0))),
			show(r, "ScattervInit", one, ranOnce(cohort.ScattervInit(world, row, ones, nil, one, 2))),
			show(r, "AlltoallInit", all, ranOnce(cohort.AlltoallInit(world, row, all))),
			show(r, "AlltoallvInit", all, ranOnce(cohort.AlltoallvInit(world, row, ones, nil, all, ones, nil))),
			show(r, "BarrierInit", nil, ranOnce(world.BarrierInit())))
	})
	// Output:
	// BcastInit [1]
	// GatherInit [0 1 2 3]
	// GathervInit [0 1 2 3]
	// AllgatherInit [0 1 2 3]
	// AllgathervInit [0 1 2 3]
	// ScatterInit [3]
	// ScattervInit [23]
	// AlltoallInit [3 13 23 33]
	// AlltoallvInit [3 13 23 33]
	// BarrierInit []
}

func ExampleBlock() {
	for rank := range 3 {
		lo, hi := cohort.Block(10, 3, rank)
		fmt.Println("rank", rank, "has", lo, "to", hi-1)
	}
	// Output:
	// rank 0 has 0 to 2
	// rank 1 has 3 to 5
	// rank 2 has 6 to 9
}
