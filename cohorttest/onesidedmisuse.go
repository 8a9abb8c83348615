package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// onesidedArguments makes wrong calls. Each is an error on the rank that makes it, and changes nothing.
func onesidedArguments(r *Rank) {
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
	if buf[0] != 0 || mine[0] != -1 {
		r.Errorf("GetAccumulate in place returned %d and left %d", buf[0], mine[0])
	}
	r.OK(w.Close())
	r.Is(errorOf(w.Remote(0)), cohort.ErrWin, "Remote of a window made by NewWindow")
	r.Is(errorOf(cohort.NewWindow[*int](r.Comm, 1)), cohort.ErrType, "a window of pointers")
	r.Is(errorOf(cohort.NewWindow[int](r.Comm, -1)), cohort.ErrCount, "a window of -1 elements")
	r.Is(errorOf(cohort.NewWindow[int](nil, 1)), cohort.ErrComm, "a window of a nil communicator")
	r.Is(errorOf(cohort.NewWindow[int64](r.Comm, math.MaxInt/8)), cohort.ErrAlloc, "a window of more memory than there is")
	r.OK(r.Comm.Barrier())
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

// onesidedClose uses windows after Close, and after Close of their communicator.
func onesidedClose(r *Rank) {
	usedAfterClose(r, cohort.NewWindow[int64])
	var none *cohort.Window[int64]
	none = none.WithContext(context.Background())
	r.Is(none.Put(nil, 0, 0), cohort.ErrWin, "Put to a nil window")
	r.Is(none.Fence(), cohort.ErrWin, "Fence of a nil window")
	r.Is(none.Sync(), cohort.ErrWin, "Sync of a nil window")
	r.OK(none.Close())
	r.OK(r.Comm.Barrier())
}

// onesidedCloseInUse closes a window that goroutines of all ranks use: each call succeeds or reports that the
// window is closed.
func onesidedCloseInUse(r *Rank) {
	w := onesided[int64](r, r.Comm, 100)
	var begun, all sync.WaitGroup
	for g := range 3 {
		begun.Add(1)
		all.Go(func() {
			x := make([]int64, 50)
			for i := 0; ; i++ {
				if i == 5 {
					begun.Done()
				}
				to := (g + i) % r.Size
				err := w.Put(x, to, i%50)
				if err == nil {
					err = w.Get(x, to, i%50)
				}
				if err == nil {
					_, err = w.FetchAndOp(1, to, i%100, cohort.Bor)
				}
				if err != nil {
					if !errors.Is(err, cohort.ErrClosed) {
						r.Errorf("beside Close: %v", err)
					}
					if i < 5 {
						begun.Done()
					}
					return
				}
			}
		})
	}
	begun.Wait()
	r.OK(w.Close())
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
