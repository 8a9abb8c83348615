package cohorttest

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
)

// Windows that are used wrongly, closed too early, or larger than the machine.

// lockMisuse makes every wrong use of locks that one rank can make: each is an error and
// changes nothing.
func lockMisuse(r *Rank) {
	w := onesided[int64](r, r.Comm, 1)
	me, n := r.Rank, r.Size
	g := must(w.Lock(cohort.LockExclusive, me))
	for _, kind := range []cohort.LockKind{cohort.LockExclusive, cohort.LockShared} {
		r.Is(errorOf(w.Lock(kind, me)), cohort.ErrWin, "a %v lock of a part that is locked", kind).opError().names(rankText(me))
	}
	r.Is(errorOf(w.LockAll()), cohort.ErrWin, "LockAll with a lock")
	r.OK(g.Flush())
	r.OK(g.Unlock())
	r.Is(g.Unlock(), cohort.ErrWin, "Unlock twice")
	r.Is(g.Flush(), cohort.ErrWin, "Flush after Unlock")
	again := must(w.Lock(cohort.LockShared, me))
	r.Is(g.Unlock(), cohort.ErrWin, "Unlock of a lock before this one")
	r.Is(g.Flush(), cohort.ErrWin, "Flush of a lock before this one")
	r.OK(again.Unlock())
	for _, rank := range []int{-1, n, math.MinInt, math.MaxInt} {
		r.Is(errorOf(w.Lock(cohort.LockShared, rank)), cohort.ErrRank, "Lock of rank %d", rank)
	}
	for _, kind := range []cohort.LockKind{0, 3, 255} {
		r.Is(errorOf(w.Lock(kind, me)), cohort.ErrWin, "a lock of kind %d", kind)
	}
	all := must(w.LockAll())
	r.Is(errorOf(w.LockAll()), cohort.ErrWin, "LockAll twice")
	r.Is(errorOf(w.Lock(cohort.LockShared, n-1)), cohort.ErrWin, "Lock during LockAll")
	r.OK(all.Unlock())
	r.Is(all.Unlock(), cohort.ErrWin, "Unlock twice after LockAll")
	r.Is(all.Flush(me), cohort.ErrWin, "Flush after LockAll and Unlock")
	r.Is(all.FlushAll(), cohort.ErrWin, "FlushAll after LockAll and Unlock")

	nobody := must(w.Lock(cohort.LockShared, cohort.ProcNull))
	r.OK(nobody.Unlock())

	r.OK(r.Comm.Barrier()) // a LockAll must not wait for the lock of a rank that is in Fence
	g = must(w.Lock(cohort.LockExclusive, me))
	r.OK(w.Put([]int64{1}, (me+1)%n, 0)) // a lock excludes nothing but locks
	r.OK(w.Fence())
	r.OK(g.Unlock())
}

// windowClose uses windows after Close, and after Close of their communicator.
func windowClose(r *Rank) {
	gone := usedAfterClose(r, cohort.AllocateShared[int64])
	w := must(cohort.AllocateShared[int64](r.Comm, 1))
	r.OK(w.Close())
	r.Is(errorOf(w.Remote(0)), cohort.ErrClosed, "Remote after Close")
	r.Is(errorOf(cohort.AllocateShared[int64](gone, 1)), cohort.ErrClosed, "AllocateShared on a closed communicator")
	r.Is(errorOf(cohort.NewSharedRegion[int64](gone, 1)), cohort.ErrClosed, "NewSharedRegion on a closed communicator")
	r.Is(errorOf(cohort.AllocateShared[int64](nil, 1)), cohort.ErrComm, "AllocateShared on a nil communicator")
	r.Is(errorOf(cohort.NewSharedRegion[int64](nil, 1)), cohort.ErrComm, "NewSharedRegion on a nil communicator")
}

// usedAfterClose returns a communicator that was closed with a window of it.
func usedAfterClose(r *Rank, make func(c *cohort.Comm, n int) (*cohort.Window[int64], error)) *cohort.Comm {
	w := must(make(r.Comm, 1))
	r.OK(w.Close())
	closed(r, "Close", w)
	equal(r, w.Size(r.Rank), 1, "Size after Close")
	d := must(r.Comm.Dup())
	w = must(make(d, 1))
	r.OK(w.Fence())
	r.OK(d.Close())
	closed(r, "Close of the communicator", w)
	return d
}

// closeWithLock closes a window of which one rank holds locks: that rank gets an error,
// and the ranks that wait for the locks get them.
func closeWithLock(r *Rank) {
	for _, all := range []bool{false, true} {
		w := onesided[int64](r, r.Comm, 1)
		var flush, unlock func() error
		if r.Rank == 0 {
			if all {
				g := must(w.LockAll())
				flush, unlock = g.FlushAll, g.Unlock
			} else {
				g := must(w.Lock(cohort.LockExclusive, r.Size-1))
				flush, unlock = g.Flush, g.Unlock
			}
		}
		r.OK(r.Comm.Barrier())
		if r.Rank == 0 {
			r.Is(w.Close(), cohort.ErrWin, "Close with a lock")
			closed(r, "Close with a lock", w)
			r.Is(flush(), cohort.ErrClosed, "Flush after Close")
			r.Is(unlock(), cohort.ErrClosed, "Unlock after Close")
			continue
		}
		g := must(w.Lock(cohort.LockExclusive, r.Size-1))
		r.OK(g.Unlock())
		r.OK(w.Close())
	}
	r.OK(r.Comm.Barrier())
}

// closeWaiting closes a window while a goroutine waits for a lock of it.
func closeWaiting(r *Rank) {
	w := onesided[int64](r, r.Comm, 1)
	word := make([]int8, 1)
	if r.Rank == 0 {
		g := must(w.Lock(cohort.LockExclusive, 0))
		r.OK(r.Comm.Barrier())
		for range r.Size - 1 {
			must(cohort.Recv(r.Comm, word, cohort.AnySource, 1))
		}
		r.OK(g.Unlock())
		r.OK(w.Close())
		return
	}
	r.OK(r.Comm.Barrier())
	waited, done := make(chan error), make(chan error)
	go func() {
		_, err := w.Lock(cohort.LockShared, 0)
		waited <- err
	}()
	go func() { done <- w.Close() }()
	r.Is(<-waited, cohort.ErrClosed, "Lock during Close")
	r.OK(cohort.Send(r.Comm, word, 0, 1))
	r.OK(<-done)
}

// closeRegion uses a region after Close, and after Close of its communicator.
func closeRegion(r *Rank) {
	gone := func(g *cohort.SharedRegion[int32], what string) {
		r.Is(errorOf(g.Slice()), cohort.ErrClosed, "Slice after %s", what)
		r.Is(errorOf(g.MutSlice()), cohort.ErrClosed, "MutSlice after %s", what)
		r.Is(errorOf(g.Range(0, 1)), cohort.ErrClosed, "Range after %s", what)
		r.Is(g.Fence(), cohort.ErrClosed, "Fence after %s", what)
		r.Is(g.Node().Barrier(), cohort.ErrClosed, "Node().Barrier after %s", what)
		r.OK(g.Close())
	}
	g := must(cohort.NewSharedRegion[int32](r.Comm, 5))
	r.OK(g.Close())
	gone(g, "Close")
	g = must(cohort.NewSharedRegion[int32](r.Comm, 5))
	r.OK(g.Node().Close())
	gone(g, "Close of its Node")
}

// windowArguments has all ranks pass the same wrong arguments: the communicator stays
// usable.
func windowArguments(r *Rank) {
	r.Is(errorOf(cohort.AllocateShared[int64](r.Comm, -1)), cohort.ErrCount, "AllocateShared of -1").opError().names("allocateshared", "-1")
	r.Is(errorOf(cohort.NewSharedRegion[int64](r.Comm, math.MinInt)), cohort.ErrCount, "NewSharedRegion of the least int").opError().names("newsharedregion")
	w := window[int64](r, r.Comm, 1)
	for _, rank := range []int{-1, r.Size, cohort.ProcNull, math.MinInt, math.MaxInt} {
		r.Is(errorOf(w.Remote(rank)), cohort.ErrRank, "Remote(%d)", rank)
	}
	r.OK(w.Fence())
}

// windowRoom asks for more memory than there is, on one rank and on all. Every rank gets
// an error with the amount and the limit, nothing is left behind, and the communicator
// stays usable.
func windowRoom(r *Rank) {
	w := window[int64](r, r.Comm, 1)
	r.OK(w.Close())
	r.OK(r.Comm.Barrier())
	before := footprint(r)
	all := "8.0 EiB" // that an int counts
	if math.MaxInt == math.MaxInt32 {
		all = "2.0 GiB"
	}
	for _, c := range []struct {
		what  string
		most  int64 // elements of 8 bytes
		words []string
	}{
		{"16 TiB", 1 << 41, []string{"16.0 TiB", "at most", "iB"}},
		{"nearly all there are addresses for", math.MaxInt / 8, []string{all}},
		{"more than there are addresses for", math.MaxInt, []string{all}},
	} {
		if c.most > math.MaxInt {
			continue // on a machine of 32 bits
		}
		for _, who := range []int{0, r.Size - 1} {
			n := 0
			if r.Rank == who {
				n = int(c.most)
			}
			w, err := cohort.AllocateShared[int64](r.Comm, n)
			r.Is(err, cohort.ErrAlloc, "a window of %s on rank %d", c.what, who).opError().names(append(c.words, "rank")...)
			if w != nil {
				r.Errorf("AllocateShared returns a window of %s", c.what)
			}
		}
		g, err := cohort.NewSharedRegion[int64](r.Comm, int(c.most))
		r.Is(err, cohort.ErrAlloc, "a region of %s", c.what).names(c.words...)
		if g != nil {
			r.Errorf("NewSharedRegion returns a region of %s", c.what)
		}
	}
	r.OK(r.Comm.Barrier())
	footprint(r).compare(r, before, 64<<20)
	r.OK(r.Comm.Barrier())
	w = window[int64](r, r.Comm, 1)
	r.OK(w.Fence())
	r.OK(w.Close())
}

// holdings counts what a process holds for windows.
type holdings struct {
	files    int
	mappings int
	resident int64 // bytes
}

// footprint returns what this process holds. Ranks that share a process get its memory
// only: they cannot tell their files and mappings from those of other ranks.
func footprint(r *Rank) (h holdings) {
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			h.resident = pages * int64(os.Getpagesize())
		}
	}
	if r.World.Caps().Processes {
		h.files, h.mappings = openFiles(), strings.Count(mappings(), "\n")
	}
	return h
}

// compare checks that the process holds no more than before, but for some memory.
func (h holdings) compare(r *Rank, before holdings, memory int64) {
	if h.files > before.files {
		r.Errorf("%d open files, %d before", h.files, before.files)
	}
	if h.mappings > before.mappings {
		r.Errorf("%d shared mappings, %d before:\n%s", h.mappings, before.mappings, mappings())
	}
	if more := h.resident - before.resident; more > memory {
		r.Errorf("%d MiB of memory more than before, want less than %d", more>>20, memory>>20)
	}
}

// windowsAbandoned is set if this process had windows of a library on broken
// communicators. A library frees a window only if all ranks do, so this memory stays
// until the process ends.
var windowsAbandoned atomic.Bool

// abandon closes a broken communicator and its windows.
func abandon(r *Rank, c *cohort.Comm, what string) {
	if r.World.Caps().Library != "" {
		windowsAbandoned.Store(true)
	}
	broken(r, c, what)
	r.OK(c.Close())
}

// twoWindows is a communicator with two windows, with which a case of oneDiffers is called.
type twoWindows struct {
	c    *cohort.Comm
	w, v *cohort.Window[int64]
}

// mismatchedWindows has one rank make another window call than the others. All of them wait for each other.
func mismatchedWindows(r *Rank) {
	type odd = oddCall[twoWindows]
	fence := func(x twoWindows) error { return x.w.Fence() }
	barrier := func(x twoWindows) error { return x.c.Barrier() }
	allocate := func(x twoWindows) error { return errorOf(cohort.AllocateShared[int64](x.c, 3)) }
	region := func(n int) func(x twoWindows) error {
		return func(x twoWindows) error { return errorOf(cohort.NewSharedRegion[int64](x.c, n)) }
	}
	open := func() (twoWindows, *cohort.Comm) {
		c := must(r.Comm.Dup())
		return twoWindows{c, window[int64](r, c, 1), window[int64](r, c, 1)}, c
	}
	oneDiffers(r, true, open,
		odd{"Barrier and Fence", fence, barrier, []string{"Fence", "called Barrier"}},
		odd{"the Fence of another window", fence, func(x twoWindows) error { return x.v.Fence() },
			[]string{"Fence(window 1)", "Fence(window 2)"}},
		odd{"Barrier and AllocateShared", allocate, barrier, []string{"AllocateShared of int64", "called Barrier"}},
		odd{"another type", allocate, func(x twoWindows) error { return errorOf(cohort.AllocateShared[float64](x.c, 3)) },
			[]string{"AllocateShared of int64", "AllocateShared of float64"}},
		odd{"a type that has pointers", allocate, func(x twoWindows) error {
			return isInstead(errorOf(cohort.AllocateShared[*int64](x.c, 3)), cohort.ErrType)
		}, []string{"AllocateShared of int64"}},
		odd{"a negative length", allocate, func(x twoWindows) error {
			return isInstead(errorOf(cohort.AllocateShared[int64](x.c, -3)), cohort.ErrCount)
		}, []string{"AllocateShared of int64"}},
		odd{"NewWindow", allocate, func(x twoWindows) error { return errorOf(cohort.NewWindow[int64](x.c, 3)) },
			[]string{"AllocateShared of int64"}},
		odd{"a region", allocate, region(3), []string{"AllocateShared of int64", "NewSharedRegion of int64"}},
		// All lengths are compared with that of rank 0.
		odd{"a region of another length", region(3), region(4), []string{"NewSharedRegion of int64", "with n = 3", "with n = 4", "rank 0"}},
		odd{"a region of another type", region(3), func(x twoWindows) error { return errorOf(cohort.NewSharedRegion[int32](x.c, 3)) },
			[]string{"NewSharedRegion of int64", "NewSharedRegion of int32"}},
	)
}
