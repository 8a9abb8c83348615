package cohorttest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/leak"
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
	for i, make := range makers[int64](r.Comm) {
		w := must(make(r.Comm, 1))
		r.OK(w.Close())
		closed(r, "Close", w)
		r.Is(errorOf(w.Remote(0)), []error{cohort.ErrWin, cohort.ErrClosed}[i], "Remote after Close")
		equal(r, w.Size(r.Rank), 1, "Size after Close")
		d := must(r.Comm.Dup())
		w = must(make(d, 1))
		r.OK(w.Fence())
		r.OK(d.Close())
		closed(r, "Close of the communicator", w)
		r.Is(errorOf(make(d, 1)), cohort.ErrClosed, "a window of a closed communicator")
		r.Is(errorOf(make(nil, 1)), cohort.ErrComm, "a window of a nil communicator")
	}
	r.OK(r.Comm.Barrier())
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
	r.Is(errorOf(cohort.NewSharedRegion[int32](g.Node(), 1)), cohort.ErrClosed, "NewSharedRegion on a closed communicator")
	r.Is(errorOf(cohort.NewSharedRegion[int32](nil, 1)), cohort.ErrComm, "NewSharedRegion on a nil communicator")
	r.Is(errorOf(cohort.NewSharedRegion[int32](r.Comm, math.MinInt)), cohort.ErrCount, "NewSharedRegion of the least int").opError().names("newsharedregion")
}

// windowRoom asks for more memory than there is, on one rank and on all. Every rank gets
// an error with the amount and the limit, and the communicator stays usable. Then it makes and closes many windows.
// Nothing is left behind.
func windowRoom(r *Rank) {
	const total = 4 << 20 // of one window
	k, n := r.pick(12, 40), total/8/r.Size
	cycle := func(i int) {
		w := must(cohort.AllocateShared[int64](r.Comm, n))
		must(w.Local())[n-1] = int64(i)
		r.OK(w.Fence())
		equal(r, must(w.Remote(r.Size - 1))[n-1], int64(i), "window %d", i)
		r.OK(w.Fence())
		r.OK(w.Close())
	}
	// Ranks that share a process cannot tell their files and mappings from those of other ranks.
	holds := func() (files, shared int, memory int64) {
		r.OK(r.Comm.Barrier())
		if r.World.Caps().Processes {
			files, shared = leak.Files(), strings.Count(mappings(), "\n")
		}
		memory, _ = proportional()
		r.OK(r.Comm.Barrier())
		return files, shared, memory
	}
	cycle(0) // what a library keeps for windows it has after the first one
	files, shared, memory := holds()
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
			equal(r, w, nil, "AllocateShared of %s", c.what)
		}
		g, err := cohort.NewSharedRegion[int64](r.Comm, int(c.most))
		r.Is(err, cohort.ErrAlloc, "a region of %s", c.what).names(c.words...)
		equal(r, g, nil, "NewSharedRegion of %s", c.what)
	}
	for i := range k {
		cycle(i)
	}
	if f, s, m := holds(); f > files || s > shared || m-memory > int64(k)*total/2 {
		r.Errorf("%d open files, %d shared mappings and %d MiB of memory; %d, %d and %d before:\n%s", f, s, m>>20, files, shared, memory>>20, mappings())
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
		return twoWindows{c, window(r, cohort.AllocateShared[int64], c, 1), window(r, cohort.AllocateShared[int64], c, 1)}, c
	}
	r.OK(must(cohort.AllocateShared[float64](r.Comm, 1)).Close()) // errors name element types that the process has used
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

// windowArguments makes wrong calls. Each is an error on the rank that makes it, and changes nothing.
func windowArguments(r *Rank) {
	n := func(rank int) int { return 10 + rank }
	w := onesided[int32](r, r.Comm, n(r.Rank))
	last := r.Size - 1
	buf := filled(4, func(i int) int32 { return -1 })
	calls := []struct {
		what string
		call func(rank, disp int) error
	}{
		{"put", func(rank, disp int) error { return w.Put(buf, rank, disp) }},
		{"get", func(rank, disp int) error { return w.Get(make([]int32, 4), rank, disp) }},
		{"accumulate", func(rank, disp int) error { return w.Accumulate(buf, rank, disp, cohort.Sum) }},
		{"getaccumulate", func(rank, disp int) error { return w.GetAccumulate(buf, make([]int32, 4), rank, disp, cohort.Sum) }},
		{"rput", func(rank, disp int) error { _, err := w.Rput(buf, rank, disp); return err }},
		{"rget", func(rank, disp int) error { _, err := w.Rget(make([]int32, 4), rank, disp); return err }},
	}
	for _, c := range calls {
		for _, disp := range []int{n(last) - 3, n(last) + 1, -1, math.MaxInt, math.MinInt, math.MaxInt / 4} {
			r.Is(c.call(last, disp), cohort.ErrWin, "%s at %d", c.what, disp).opError().names(c.what, "window", rankText(last), fmt.Sprint(disp), "4 elements", fmt.Sprint(n(last)))
		}
		for _, rank := range []int{-1, r.Size, math.MinInt, math.MaxInt} {
			r.Is(c.call(rank, 0), cohort.ErrRank, "%s to rank %d", c.what, rank)
		}
	}
	for _, disp := range []int{n(last), -1} {
		r.Is(errorOf(w.FetchAndOp(1, last, disp, cohort.Sum)), cohort.ErrWin, "FetchAndOp at %d", disp)
		r.Is(errorOf(w.CompareAndSwap(0, 1, last, disp)), cohort.ErrWin, "CompareAndSwap at %d", disp)
	}
	user := cohort.NewOp(true, func(in, inout []int32) {})
	r.Is(w.Accumulate(buf, last, 0, user), cohort.ErrOp, "Accumulate with a user operation")
	r.Is(w.Accumulate(buf, last, 0, cohort.Op{}), cohort.ErrOp, "Accumulate with the zero Op")
	r.Is(w.Accumulate(buf, last, 0, cohort.MinLoc), cohort.ErrOp, "Accumulate of int32 with MinLoc")
	r.Is(errorOf(w.FetchAndOp(1, last, 0, user)), cohort.ErrOp, "FetchAndOp with a user operation")
	r.Is(w.GetAccumulate(buf, buf[:3], last, 0, cohort.Sum), cohort.ErrBuffer, "GetAccumulate of other lengths")
	r.Is(w.GetAccumulate(buf[:3], buf[1:], last, 0, cohort.Sum), cohort.ErrBuffer, "GetAccumulate of buffers that overlap")
	r.Is(w.Flush(r.Size), cohort.ErrRank, "Flush of a rank that does not exist")
	p := onesided[packed](r, r.Comm, 2)
	r.Is(p.Accumulate(make([]packed, 1), last, 0, cohort.Sum), cohort.ErrOp, "Accumulate of structs")
	r.Is(errorOf(p.CompareAndSwap(packed{}, packed{}, last, 0)), cohort.ErrType, "CompareAndSwap of structs")
	r.OK(p.Close())

	r.OK(w.Fence())
	mine := must(w.Local())
	same(r, mine, func(int) int32 { return 0 }, "after wrong calls")
	r.OK(w.GetAccumulate(buf, buf, r.Rank, 0, cohort.Sum)) // in place
	equal(r, [2]int32{buf[0], mine[0]}, [2]int32{0, -1}, "what GetAccumulate in place returned, and left")
	r.Is(errorOf(w.Remote(0)), cohort.ErrWin, "Remote of a window made by NewWindow")
	r.OK(w.Close())
	for i, make := range makers[int64](r.Comm) {
		r.Is(errorOf(make(r.Comm, -1)), cohort.ErrCount, "a window of -1 elements").opError().names([]string{"newwindow", "allocateshared"}[i], "-1")
		r.Is(errorOf(make(r.Comm, math.MaxInt/8)), cohort.ErrAlloc, "a window of more memory than there is")
		w := window(r, make, r.Comm, 1)
		for _, rank := range []int{-1, r.Size, cohort.ProcNull, math.MinInt, math.MaxInt} {
			if i == 1 {
				r.Is(errorOf(w.Remote(rank)), cohort.ErrRank, "Remote(%d)", rank)
			}
		}
		r.OK(w.Fence())
	}
}

// closed checks that every call reports that a window is closed.
func closed(r *Rank, what string, w *cohort.Window[int64]) {
	x := make([]int64, 1)
	_, local := w.Local()
	_, fetch := w.FetchAndOp(1, 0, 0, cohort.Sum)
	_, swap := w.CompareAndSwap(1, 0, 0, 0)
	_, rput := w.Rput(x, 0, 0)
	_, lock := w.Lock(cohort.LockShared, 0)
	_, all := w.LockAll()
	for i, err := range []error{local, fetch, swap, rput, lock, all, w.Put(x, 0, 0), w.Get(x, 0, 0), w.Accumulate(x, 0, 0, cohort.Sum),
		w.Flush(0), w.FlushAll(), w.Fence(), w.Sync()} {
		r.Is(err, cohort.ErrClosed, "call %d after %s", i, what)
	}
	r.OK(w.Close())
}

// windowCloseInUse closes a window that goroutines of all ranks use and lock: each call succeeds or reports that the
// window is closed.
func windowCloseInUse(r *Rank) {
	w := onesided[int64](r, r.Comm, 100)
	fine := func(what string, err error, allowed ...error) (closed bool) {
		r.only(err, what+" during Close", append(allowed, cohort.ErrClosed)...)
		return errors.Is(err, cohort.ErrClosed)
	}
	var all, begun sync.WaitGroup
	goroutines := r.pick(6, 20)
	begun.Add(goroutines)
	for i := range goroutines {
		all.Go(func() {
			x, kind := make([]int64, 50), []cohort.LockKind{cohort.LockExclusive, cohort.LockShared}[i%2]
			for k, closed := 0, false; k <= 5 || !closed; k++ {
				to := (i + k) % r.Size
				g, err := w.Lock(kind, to)
				if fine("Lock", err, cohort.ErrWin); err == nil { // ErrWin: another goroutine of this rank holds the lock, or waits for it
					fine("Flush", g.Flush())
					fine("Unlock", g.Unlock())
				}
				fine("Put", w.Put(x, to, i))
				fine("Get", w.Get(x, to, i))
				fine("FetchAndOp", errorOf(w.FetchAndOp(1, to, k%100, cohort.Bor)))
				fine("Local", errorOf(w.Local()))
				closed = fine("Sync", w.Sync())
				if k == 5 {
					begun.Done()
				}
			}
		})
	}
	begun.Wait()
	fine("Close", w.Close(), cohort.ErrWin)
	all.Wait()
	closed(r, "Close", w)
	r.OK(r.Comm.Barrier())
}

// windowsLeftOpen leaves windows to Close of their communicator, and of the world.
func windowsLeftOpen(r *Rank) {
	for i := range 3 {
		d := must(r.Comm.Dup())
		w, v := onesided[int64](r, d, 1000), onesided[int32](r, d, i)
		r.OK(w.Put(make([]int64, 1000), (r.Rank+1)%r.Size, 0))
		r.OK(errors.Join(w.Fence(), v.Fence()))
		if i == 0 {
			r.OK(d.Close())
		}
	}
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
