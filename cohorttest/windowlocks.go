package cohorttest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Locks of windows (MPI-4.1 sections 12.5.3 and 12.5.4).

// lockedReaders has the ranks in turn write both numbers of a pair under an exclusive
// lock, and the others read them under a shared one: they are always equal.
func lockedReaders(r *Rank) {
	rounds := r.pick(15, 60)
	w := window[int64](r, r.Comm, 2)
	p := part(r, w, 0)
	for i := range rounds {
		kind := cohort.LockShared
		if i%r.Size == r.Rank {
			kind = cohort.LockExclusive
		}
		g := must(w.Lock(kind, 0))
		if p[0] != p[1] {
			r.Errorf("round %d: the pair is %d and %d under a %v lock", i, p[0], p[1], kind)
		}
		if kind == cohort.LockExclusive {
			p[0]++
			p[1]++
		}
		r.OK(g.Unlock())
	}
	r.OK(w.Fence())
	if p[0] != int64(rounds) {
		r.Errorf("%d rounds, want %d", p[0], rounds)
	}
	r.OK(w.Fence())
	// All may hold a shared lock at the same time: none releases it before all hold it.
	g := must(w.Lock(cohort.LockShared, r.Size-1))
	r.OK(r.Comm.Barrier())
	r.OK(g.Unlock())
}

// lockedAll has all ranks hold the shared locks of all parts at the same time, and then
// an exclusive one.
func lockedAll(r *Rank) {
	w := onesided[int64](r, r.Comm, 1)
	has := func(rank int) int64 {
		x := make([]int64, 1)
		r.OK(w.Get(x, rank, 0))
		return x[0]
	}
	all := must(w.LockAll())
	r.OK(w.Put([]int64{int64(r.Rank)}, (r.Rank+1)%r.Size, 0)) // each rank writes another part
	for rank := range r.Size {
		r.OK(all.Flush(rank))
	}
	r.OK(all.FlushAll())
	r.Is(all.Flush(r.Size), cohort.ErrRank, "Flush of rank %d", r.Size)
	r.Is(all.Flush(-1), cohort.ErrRank, "Flush of rank -1")
	r.OK(r.Comm.Barrier()) // all of them have the locks at the same time
	for rank := range r.Size {
		if got, want := has(rank), int64((rank+r.Size-1)%r.Size); got != want {
			r.Errorf("rank %d's part has %d, want %d", rank, got, want)
		}
	}
	r.OK(r.Comm.Barrier())
	r.OK(all.Unlock())
	g := must(w.Lock(cohort.LockExclusive, 0))
	r.OK(w.Put([]int64{has(0) + 1}, 0, 0))
	r.OK(g.Unlock())
	r.OK(w.Fence())
	if got, want := has(0), int64(r.Size-1+r.Size); got != want {
		r.Errorf("rank 0's part has %d, want %d", got, want)
	}
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

// lockGoroutines has many goroutines of every rank lock and read the parts of a window
// until it is closed: each call succeeds or returns an expected error.
func lockGoroutines(r *Rank) {
	w := onesided[int64](r, r.Comm, 1)
	fine := func(what string, err error, allowed ...error) {
		if err != nil && !slices.ContainsFunc(allowed, func(a error) bool { return errors.Is(err, a) }) {
			r.Errorf("%s during Close: %v", what, err)
		}
	}
	var all, begun sync.WaitGroup
	goroutines := r.pick(6, 20)
	begun.Add(goroutines)
	for i := range goroutines {
		all.Go(func() {
			for k := 0; ; k++ {
				if k == 5 {
					begun.Done()
				}
				kind := cohort.LockShared
				if i%2 == 0 {
					kind = cohort.LockExclusive
				}
				// ErrWin: another goroutine of this rank holds the lock, or waits for it.
				g, err := w.Lock(kind, (i+k)%r.Size)
				fine("Lock", err, cohort.ErrClosed, cohort.ErrWin)
				if err == nil {
					fine("Flush", g.Flush(), cohort.ErrClosed)
					fine("Unlock", g.Unlock(), cohort.ErrClosed)
				}
				fine("Get", w.Get(make([]int64, 1), k%r.Size, 0), cohort.ErrClosed)
				fine("Sync", w.Sync(), cohort.ErrClosed)
				if _, err := w.Local(); err != nil && k >= 5 {
					fine("Local", err, cohort.ErrClosed)
					return
				}
			}
		})
	}
	begun.Wait()
	fine("Close", w.Close(), cohort.ErrWin)
	all.Wait()
	r.Is(w.Sync(), cohort.ErrClosed, "Sync after Close")
	r.OK(r.Comm.Barrier())
}

// deadWithLock has a rank die while it holds a lock that the others wait for.
func deadWithLock(kind cohort.LockKind) func(r *Rank) {
	return func(r *Rank) {
		w := onesided[int64](r, r.Comm, 1)
		if r.Rank == r.Size-1 {
			must(w.Lock(kind, 0))
		}
		r.OK(r.Comm.Barrier())
		die(r, r.Size-1, func() error { return errorOf(w.Lock(cohort.LockExclusive, 0)) })
	}
}

// deadBefore has a rank die before a call that needs all ranks.
func deadBefore(call func(r *Rank, w *cohort.Window[int64]) error) func(r *Rank) {
	return func(r *Rank) {
		w := onesided[int64](r, r.Comm, 1)
		die(r, r.Size-1, func() error { return call(r, w) })
	}
}
