package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort"
)

// One-sided windows: accesses with deadlines, and losses of ranks whose requests are under way.

// onesidedDeadlines makes accesses whose deadlines are near or have passed. Answers that come too late are not taken
// for those of later accesses.
func onesidedDeadlines(r *Rank) {
	const n = 1000
	w := onesided[int64](r, r.Comm, 2*n)
	mine := must(w.Local())
	for i := range mine {
		mine[i] = int64(r.Rank)<<32 + int64(i)
	}
	r.OK(w.Fence())
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			got := make([]int64, n)
			for i := range 150 {
				to, at := (r.Rank+i)%r.Size, (i*37+g)%n
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%10-1)*10*time.Microsecond)
				timed := w.WithContext(ctx)
				length := []int{1, 1, 7, n}[i%4]
				err := timed.Get(got[:length], to, at)
				if err == nil && (got[0] != int64(to)<<32+int64(at) || got[length-1] != int64(to)<<32+int64(at+length-1)) {
					r.Errorf("Get from rank %d at %d: %#x … %#x", to, at, got[0], got[length-1])
				}
				was, err2 := timed.FetchAndOp(0, to, at, cohort.Sum)
				if err2 == nil && was != int64(to)<<32+int64(at) {
					r.Errorf("FetchAndOp at rank %d, %d: %#x", to, at, was)
				}
				if i%20 == 0 {
					if err3 := timed.FlushAll(); err3 != nil && !errors.Is(err3, cohort.ErrTimeout) {
						r.Errorf("FlushAll with a deadline: %v", err3)
					}
				}
				cancel()
				for _, err := range []error{err, err2} {
					if err != nil && !errors.Is(err, cohort.ErrTimeout) {
						r.Errorf("an access with a deadline: %v", err)
					}
				}
				// One without a deadline takes the tag of an answer that may still come.
				if was, err := w.FetchAndOp(0, to, n-1, cohort.Sum); err != nil || was != int64(to)<<32+n-1 {
					r.Errorf("FetchAndOp at rank %d after deadlines: %#x, %v", to, was, err)
				}
			}
		})
	}
	all.Wait()
	r.OK(w.Fence())
	for from := range r.Size {
		got := make([]int64, 2*n)
		r.OK(w.Get(got, from, 0))
		same(r, got, func(i int) int64 { return int64(from)<<32 + int64(i) }, "rank %d's part after accesses that change nothing", from)
	}
}

// deadOrigin has a rank die whose requests nobody has answered, while other ranks use the same part.
func deadOrigin(r *Rank) {
	victim := r.Size - 1
	w := onesided[int64](r, r.World, 1<<16)
	r.OK(w.Fence())
	dieBy(r, victim, func(r *Rank) {
		buf := make([]int64, 1<<16)
		for range 10 {
			must(w.Rput(buf, 0, 0))
			must(w.Rget(buf, 0, 0))
		}
		for i := range 255 {
			r.OK(w.Put(buf[:1], 0, i))
		}
		perish(r)
	}, func() error {
		for begun := time.Now(); ; {
			if _, err := w.FetchAndOp(1, 0, 0, cohort.Sum); err != nil {
				return err
			}
			if err := w.FlushAll(); err != nil {
				return err
			}
			if time.Since(begun) > late {
				return fmt.Errorf("no access has failed for %v", late)
			}
		}
	})
	r.Is(w.Put([]int64{1}, 0, 0), cohort.ErrPeerLost, "Put to rank 0 after the loss")
	r.Is(w.Fence(), cohort.ErrPeerLost, "Fence after the loss")
	// Between nodes the ranks wait for each other.
	if err := w.Close(); err != nil && !errors.Is(err, cohort.ErrPeerLost) && !errors.Is(err, cohort.ErrBroken) {
		r.Errorf("Close after the loss: %v", err)
	}
	closed(r, "Close after a loss", w)
}
