package cohorttest

import (
	"context"
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Locks of windows (MPI-4.1 sections 12.5.3 and 12.5.4).

// windowLocks increments pairs of counters under exclusive locks, and reads them under shared ones: the two are always
// equal.
func windowLocks(r *Rank) {
	const each = 25
	for _, make := range makers[int64](r.Comm) {
		w, pair := window(r, make, r.Comm, 2), []int64{0, 0}
		locked := func(kind cohort.LockKind, to int) {
			g := must(w.Lock(kind, to))
			if part, err := w.Remote(to); err == nil {
				copy(pair, part)
			} else {
				r.OK(w.Get(pair, to, 0))
			}
			equal(r, pair[1], pair[0], "rank %d's pair under a lock (%v)", to, kind)
			if part, err := w.Remote(to); kind == cohort.LockExclusive && err == nil {
				part[0]++
				runtime.Gosched() // where ranks share a process
				part[1]++
			} else if kind == cohort.LockExclusive {
				r.OK(w.Put([]int64{pair[0] + 1}, to, 0))
				r.OK(w.Put([]int64{pair[1] + 1}, to, 1))
			}
			r.OK(g.Unlock())
		}
		for i := range each {
			to := (r.Rank + i) % r.Size
			locked(cohort.LockExclusive, to)
			locked(cohort.LockShared, to)
		}
		r.OK(w.Fence())
		sum := int64(0)
		for from := range r.Size {
			r.OK(w.Get(pair, from, 0))
			sum += pair[0]
		}
		equal(r, sum, int64(each*r.Size), "the counters' sum")
		// All may hold a shared lock at the same time: none releases it before all hold it.
		g := must(w.Lock(cohort.LockShared, r.Size-1))
		r.OK(r.Comm.Barrier())
		r.OK(g.Unlock())
	}
}

// lockedAll has all ranks hold the shared locks of all parts at the same time.
func lockedAll(r *Rank) {
	w := onesided[int64](r, r.Comm, 1)
	all, x := must(w.LockAll()), make([]int64, 1)
	r.OK(w.Put([]int64{int64(r.Rank)}, (r.Rank+1)%r.Size, 0)) // each rank writes another part
	for rank := range r.Size {
		r.OK(all.Flush(rank))
	}
	r.OK(all.FlushAll())
	r.Is(all.Flush(r.Size), cohort.ErrRank, "Flush of rank %d", r.Size)
	r.Is(all.Flush(-1), cohort.ErrRank, "Flush of rank -1")
	r.OK(r.Comm.Barrier()) // all of them have the locks at the same time
	for rank := range r.Size {
		r.OK(w.Get(x, rank, 0))
		equal(r, x[0], int64((rank+r.Size-1)%r.Size), "rank %d's part", rank)
	}
	r.OK(r.Comm.Barrier())
	r.OK(all.Unlock())
}

// lockPatience is long enough for one answer of a rank on a busy machine, which says who holds the lock.
const lockPatience = 200 * time.Millisecond

// lockDeadline waits for a lock until the deadline. After that, everything goes on as if
// the call had not been made.
func lockDeadline(r *Rank) {
	w := onesided[int64](r, r.Comm, 1)
	last := r.Size - 1
	timedOut := func(what string, kind cohort.LockKind, lock func(w *cohort.Window[int64]) error) {
		ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
		defer cancel()
		begun := time.Now()
		err := lock(w.WithContext(ctx))
		words := []string{what, rankText(last)}
		if kind == cohort.LockExclusive {
			words = append(words, "rank 0 holds it")
		}
		r.Is(err, cohort.ErrTimeout, "%s", what).opError().names(words...)
		if took := time.Since(begun); took > lockPatience+late {
			r.Errorf("%s ended after %v, its deadline was %v", what, took, lockPatience)
		}
	}
	for _, kind := range []cohort.LockKind{cohort.LockExclusive, cohort.LockShared} {
		var held *cohort.LockGuard
		if r.Rank == 0 {
			held = must(w.Lock(kind, last))
		}
		r.OK(r.Comm.Barrier())
		if r.Rank != 0 {
			timedOut("lock", kind, func(w *cohort.Window[int64]) error { return errorOf(w.Lock(cohort.LockExclusive, last)) })
		}
		if r.Rank != 0 && kind == cohort.LockExclusive {
			timedOut("lockall", kind, func(w *cohort.Window[int64]) error { return errorOf(w.LockAll()) })
		}
		r.OK(r.Comm.Barrier())
		if r.Rank != 0 && kind == cohort.LockExclusive {
			// The calls leave nothing behind: the other parts are free.
			g := must(w.Lock(cohort.LockExclusive, 0))
			r.OK(g.Unlock())
		}
		r.OK(r.Comm.Barrier())
		if r.Rank == 0 {
			r.OK(held.Unlock())
		}
		for _, again := range []cohort.LockKind{cohort.LockExclusive, cohort.LockShared} {
			g := must(w.Lock(again, last))
			r.OK(g.Unlock())
		}
		r.OK(w.Fence())
	}
}
