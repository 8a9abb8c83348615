package cohort_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// withWindow runs 4 ranks that make a window of 4 numbers each, and prints an error.
func withWindow(body func(world *cohort.Comm, w *cohort.Window[int]) error) {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		w, err := cohort.NewWindow[int](world, 4)
		if err != nil {
			return err
		}
		if err := body(world, w); err != nil {
			return err
		}
		return w.Close()
	})
	if err != nil {
		fmt.Println(err)
	}
}

func ExampleNewWindow() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		// Every rank writes its square into rank 0's part. Rank 0 only calls Fence.
		r := world.Rank()
		if err := w.Put([]int{r * r}, 0, r); err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		if r == 0 {
			mine, err := w.Local()
			if err != nil {
				return err
			}
			fmt.Println(mine)
		}
		return nil
	})
	// Output: [0 1 4 9]
}

func ExampleWindow_Put() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		if world.Rank() != 0 {
			return nil
		}
		if err := w.Put([]int{7, 8}, 3, 1); err != nil { // elements 1 and 2 of rank 3
			return err
		}
		part := make([]int, 4)
		err := w.Get(part, 3, 0) // after the Put, because both are of one goroutine
		fmt.Println(part)
		return err
	})
	// Output: [0 7 8 0]
}

func ExampleWindow_Get() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		mine, err := w.Local()
		if err != nil {
			return err
		}
		for i := range mine {
			mine[i] = 10*world.Rank() + i
		}
		if err := w.Fence(); err != nil {
			return err
		}
		if world.Rank() != 0 {
			return nil
		}
		two := make([]int, 2)
		if err := w.Get(two, 3, 1); err != nil { // elements 1 and 2 of rank 3
			return err
		}
		fmt.Println(two)
		return nil
	})
	// Output: [31 32]
}

func ExampleWindow_Accumulate() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		// A histogram: bin b is element b/4 of rank b%4.
		for _, b := range []int{3, 9, world.Rank()} {
			if err := w.Accumulate([]int{1}, b%4, b/4, cohort.Sum); err != nil {
				return err
			}
		}
		err := w.Fence()
		if err == nil && world.Rank() == 0 {
			for rank := range 4 {
				bins := make([]int, 4)
				if err := w.Get(bins, rank, 0); err != nil {
					return err
				}
				fmt.Println(bins)
			}
		}
		return err
	})
	// Output:
	// [1 0 0 0]
	// [1 0 4 0]
	// [1 0 0 0]
	// [5 0 0 0]
}

func ExampleWindow_GetAccumulate() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		if world.Rank() != 0 {
			return nil
		}
		before := make([]int, 2)
		for range 2 {
			if err := w.GetAccumulate([]int{5, 7}, before, 3, 0, cohort.Sum); err != nil {
				return err
			}
			fmt.Println(before)
		}
		return nil
	})
	// Output:
	// [0 0]
	// [5 7]
}

func ExampleWindow_FetchAndOp() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		// The ranks draw the numbers 0 to 9 from a counter on rank 0. Each is drawn once.
		sum := 0
		for {
			task, err := w.FetchAndOp(1, 0, 0, cohort.Sum)
			if err != nil {
				return err
			}
			if task >= 10 {
				break
			}
			sum += task
		}
		total, err := cohort.ReduceOne(world, sum, cohort.Sum, 0)
		if world.Rank() == 0 && err == nil {
			fmt.Println(total)
		}
		return err
	})
	// Output: 45
}

func ExampleWindow_CompareAndSwap() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		// The first rank to set element 0 of rank 2 is the leader.
		was, err := w.CompareAndSwap(0, 1+world.Rank(), 2, 0)
		if err != nil {
			return err
		}
		leaders := 0
		if was == 0 {
			leaders = 1
		}
		total, err := cohort.ReduceOne(world, leaders, cohort.Sum, 0)
		if world.Rank() == 0 && err == nil {
			fmt.Println(total, "leader")
		}
		return err
	})
	// Output: 1 leader
}

func ExampleWindow_Flush() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		switch world.Rank() {
		case 0:
			if err := w.Put([]int{42}, 1, 3); err != nil {
				return err
			}
			if err := w.Flush(1); err != nil { // rank 1 has it now
				return err
			}
			return cohort.Send(world, []bool{true}, 1, 0)
		case 1:
			if _, err := cohort.Recv(world, make([]bool, 1), 0, 0); err != nil {
				return err
			}
			mine, err := w.Local()
			if err != nil {
				return err
			}
			fmt.Println(mine)
		}
		return nil
	})
	// Output: [0 0 0 42]
}

func ExampleWindow_Lock() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		// Two elements that must change together need a lock.
		lock, err := w.Lock(cohort.LockExclusive, 0)
		if err != nil {
			return err
		}
		pair := make([]int, 2)
		if err := w.Get(pair, 0, 0); err != nil {
			return err
		}
		pair[0]++
		pair[1] += pair[0]
		if err := w.Put(pair, 0, 0); err != nil {
			return err
		}
		if err := lock.Unlock(); err != nil {
			return err
		}
		err = w.Fence()
		if err == nil && world.Rank() == 0 {
			mine, err := w.Local()
			if err != nil {
				return err
			}
			fmt.Println(mine[:2])
		}
		return err
	})
	// Output: [4 10]
}

func ExampleWindow_Rget() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		out, err := w.Rput([]int{1, 2, 3, 4}, world.Rank(), 0)
		if err != nil {
			return err
		}
		if err := w.Fence(); err != nil {
			return err
		}
		parts := make([]int, 4)
		in, err := w.Rget(parts, (world.Rank()+1)%4, 0)
		if err != nil {
			return err
		}
		// Compute something else here.
		err = cohort.WaitAll(out, in)
		if err == nil && world.Rank() == 0 {
			fmt.Println(parts)
		}
		return err
	})
	// Output: [1 2 3 4]
}

func ExampleWindow_MPIHandle() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		_, err := w.MPIHandle()
		if world.Rank() == 0 {
			fmt.Println(errors.Is(err, cohort.ErrNotSupported))
		}
		return nil
	})
	// Output: true
}

func ExampleAllocateShared() {
	four(func(world *cohort.Comm) error {
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
	// Output:
	// [0 1]
	// [10 11]
	// [20 21]
	// [30 31]
}

func ExampleWindow_Size() {
	four(func(world *cohort.Comm) error {
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
	// Output:
	// rank 0 has 0 elements
	// rank 1 has 2 elements
	// rank 2 has 4 elements
	// rank 3 has 6 elements
}

func ExampleNewSharedRegion() {
	four(func(world *cohort.Comm) error {
		const n = 1000
		table, err := cohort.NewSharedRegion[float64](world, n)
		if err != nil {
			return err
		}
		defer table.Close()
		// The ranks of each node fill its copy together.
		node := table.Node()
		lo, hi := cohort.Block(n, node.Size(), node.Rank())
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
	// Output:
	// 1000 0 999
}

// A lock of all parts keeps exclusive locks out, and others that lock all parts in.
func ExampleWindow_LockAll() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		all, err := w.LockAll()
		if err != nil {
			return err
		}
		for rank := range 4 {
			if err := w.Accumulate([]int{1}, rank, 0, cohort.Sum); err != nil {
				return err
			}
		}
		if err := all.FlushAll(); err != nil { // complete at all targets
			return err
		}
		err = errors.Join(all.Unlock(), w.Fence())
		if err == nil && world.Rank() == 0 {
			mine, err := w.Local()
			fmt.Println(mine)
			return err
		}
		return err
	})
	// Output: [4 0 0 0]
}

func ExampleWindow_FlushAll() {
	withWindow(func(world *cohort.Comm, w *cohort.Window[int]) error {
		if world.Rank() == 0 {
			err := errors.Join(w.Put([]int{1}, 1, 0), w.Put([]int{2}, 2, 0), w.Put([]int{3}, 3, 0), w.FlushAll())
			if err != nil {
				return err
			}
		}
		if err := world.Barrier(); err != nil { // all parts are written
			return err
		}
		mine, err := w.Local()
		if err == nil {
			err = w.Sync() // so that this rank's reads see what others have written
		}
		if world.Rank() == 3 {
			fmt.Println(mine)
		}
		return err
	})
	// Output: [3 0 0 0]
}

// The first rank of each node writes the node's copy.
func ExampleSharedRegion_MutSlice() {
	four(func(world *cohort.Comm) error {
		table, err := cohort.NewSharedRegion[int](world, 5)
		if err != nil {
			return err
		}
		defer table.Close()
		if table.IsLeader() {
			all, err := table.MutSlice()
			if err != nil {
				return err
			}
			for i := range all {
				all[i] = i * i
			}
		}
		if err := table.Fence(); err != nil {
			return err
		}
		all, err := table.Slice()
		if world.Rank() == 3 {
			fmt.Println(all)
		}
		return err
	})
	// Output:
	// [0 1 4 9 16]
}
