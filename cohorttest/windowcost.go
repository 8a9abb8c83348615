package cohorttest

import (
	"cmp"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// What windows cost: one copy of the memory for all ranks of a node, and no allocations.

// oneCopy has all ranks of a node read a region of 256 MiB, 64 MiB in the smaller matrix.
// The memory of all together grows by one copy. It is measured by the proportional set
// size, which counts a page that four processes have mapped as a quarter in each.
func oneCopy(r *Rank) {
	size := r.pick(64<<20, 256<<20)
	if !r.World.Caps().Processes {
		return // ranks share one process
	}
	r.OK(r.Comm.Barrier())
	before, ok := proportional()
	r.OK(r.Comm.Barrier())
	g := must(cohort.NewSharedRegion[int64](r.Comm, size/8))
	node := g.Node()
	lo, hi := size/8*node.Rank()/node.Size(), size/8*(node.Rank()+1)/node.Size()
	mine := must(g.Range(lo, hi))
	for i := range mine {
		mine[i] = int64(lo + i)
	}
	r.OK(g.Fence())
	all := must(g.Slice())
	same(r, all, func(i int) int64 { return int64(i) }, "a region of all")
	r.OK(g.Fence()) // all have read all of it
	after, _ := proportional()
	r.OK(g.Fence())
	sum := must(cohort.AllreduceOne(node, after-before, cohort.Sum))
	if want := int64(size); ok && (sum > want+want/10 || sum < want-want/10) {
		r.Errorf("the memory of %d ranks grew by %d MiB for a region of %d MiB", node.Size(), sum>>20, size>>20)
	}
	r.OK(g.Close())
	r.OK(r.Comm.Barrier())
	if end, ok := proportional(); ok && end-before > int64(size)/10 {
		r.Errorf("after Close the process has %d MiB more memory than before", (end-before)>>20)
	}
	r.OK(r.Comm.Barrier())
}

// proportional returns the proportional set size of this process in bytes, or false if
// the system does not report it. Garbage of earlier scenarios is given back first: else the
// collector may do so between two readings.
func proportional() (int64, bool) {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

// windowAllocations checks that no call on a window allocates.
func windowAllocations(r *Rank) {
	if racing || r.World.Caps().Library != "" {
		return // the race detector and libraries may allocate
	}
	last, buf := r.Size-1, make([]int64, 1000)
	for i, make := range makers[int64](r.Comm) {
		w := window(r, make, r.Comm, 1000)
		calls := []func() error{
			w.Fence,
			w.Sync,
			func() error { _, err := w.Local(); return err },
			func() error { return w.Put(buf, last, 0) },
			func() error { return w.Put(buf[:1], last, 3) },
			func() error { return w.Get(buf, last, 0) },
			func() error { return w.Get(buf[:1], last, 3) },
			func() error { return w.Accumulate(buf, last, 0, cohort.Sum) },
			func() error { _, err := w.FetchAndOp(1, last, 0, cohort.Sum); return err },
			func() error { _, err := w.CompareAndSwap(1, 2, last, 0); return err },
			func() error { return w.Flush(last) },
			func() error { _, err := w.Remote(last); return err },
			func() error { // a lock on another node allocates
				g, err := w.Lock(cohort.LockExclusive, last)
				return cmp.Or(err, g.Flush(), g.Unlock())
			},
			func() error {
				g, err := w.LockAll()
				return cmp.Or(err, g.FlushAll(), g.Unlock())
			},
		}
		for what, call := range calls[:[]int{11, len(calls)}[i]] {
			noAllocations(r, fmt.Sprintf("call %d on a window", what), call)
		}
	}
}

// noAllocations makes a call on all ranks, and counts the allocations in the process of
// the first one, which may be that of all ranks.
func noAllocations(r *Rank, what string, call func() error) {
	const warm, runs = 20, 100
	var failed error
	step := func() {
		if err := call(); err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", what, err)
		}
	}
	for range warm {
		step()
	}
	r.OK(r.Comm.Barrier())
	if r.Rank == 0 {
		equal(r, testing.AllocsPerRun(runs, step), 0, "allocations of %s", what)
	} else {
		for range runs + 1 { // AllocsPerRun makes one more
			step()
		}
	}
	r.OK(failed)
	r.OK(r.Comm.Barrier())
}
