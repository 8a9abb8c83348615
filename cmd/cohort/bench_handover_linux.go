package main

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort"
)

// handover returns how many nanoseconds a cache line takes from the processor of rank 0 to that of rank 1: 30
// to 60 if they share a cache, 150 and more if not. A virtual machine may be moved from one situation to the
// other, and times of the two must not be compared. All ranks call it; the others sleep meanwhile. It returns 0
// if the ranks are on different nodes or have one processor together.
func handover(world *cohort.Comm) (ns float64, err error) {
	if world.Size() < 2 {
		return 0, nil
	}
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return 0, err
	}
	var mine [2]int64 // the first two processors of this rank
	for cpu, n := 0, 0; n < min(mask.Count(), len(mine)); cpu++ {
		if mask.IsSet(cpu) {
			mine[n] = int64(cpu) + 1
			n++
		}
	}
	all := make([]int64, len(mine)*world.Size())
	if err := cohort.Allgather(world, mine[:], all); err != nil {
		return 0, err
	}
	if world.Rank() == 0 {
		if a, b := otherThan(0, all[0:2]), otherThan(all[0], all[2:4]); b > 0 && sameNode(world) {
			ns = passLine(int(a-1), int(b-1))
		}
	} else {
		time.Sleep(20 * time.Millisecond)
	}
	return ns, world.Barrier()
}

// otherThan returns the first of two processors that is not cpu. 0 is none.
func otherThan(cpu int64, two []int64) int64 {
	if two[0] != cpu {
		return two[0]
	}
	return two[1]
}

// sameNode reports whether ranks 0 and 1 are on one node.
func sameNode(world *cohort.Comm) bool {
	return slices.Contains(world.Topology().Hosts[0].Ranks, 1)
}

// passLine passes a word from one processor to another and back, and returns the time of one pass in the fastest
// of several bursts. It returns 0 if this process may not use one of the processors.
func passLine(a, b int) float64 {
	const trips, bursts = 5000, 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	var (
		line   [32]atomic.Uint32 // the word in the middle shares its cache line with nothing else
		word   = &line[16]
		placed = make(chan error, 2)
		begin  = make(chan bool)
		took   [bursts]time.Duration
		wg     sync.WaitGroup
	)
	// A thread that is locked to a goroutine ends with it, and so does its affinity.
	place := func(cpu int) bool {
		runtime.LockOSThread()
		var one unix.CPUSet
		one.Set(cpu)
		placed <- unix.SchedSetaffinity(0, &one)
		return <-begin
	}
	wg.Go(func() {
		if !place(b) {
			return
		}
		for i := range uint32(bursts * trips) {
			for word.Load() != 2*i+1 {
			}
			word.Store(2*i + 2)
		}
	})
	wg.Go(func() {
		if !place(a) {
			return
		}
		next := uint32(0)
		for k := range took {
			start := time.Now()
			for range trips {
				for word.Load() != next {
				}
				word.Store(next + 1)
				next += 2
			}
			took[k] = time.Since(start)
		}
	})
	ok := errors.Join(<-placed, <-placed) == nil
	begin <- ok
	begin <- ok
	wg.Wait()
	return float64(slices.Min(took[:]).Nanoseconds()) / (2 * trips)
}
