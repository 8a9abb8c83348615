package cohort

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// onRanks runs body on n ranks of backend local.
func onRanks(t *testing.T, n int, body func(c *Comm) error) {
	t.Helper()
	if err := Run(context.Background(), n, body); err != nil {
		t.Error(err)
	}
}

func TestWindowParts(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onRanks(t, n, func(c *Comm) error {
				w, err := AllocateShared[int32](c, 10*c.Rank())
				if err != nil {
					return err
				}
				defer w.Close()
				local, err := w.Local()
				if err != nil || len(local) != 10*c.Rank() || cap(local) != len(local) {
					return fmt.Errorf("Local: %d of %d elements, %v", len(local), cap(local), err)
				}
				for i := range local {
					if local[i] != 0 {
						return fmt.Errorf("a new element is %d", local[i])
					}
					local[i] = int32(100*c.Rank() + i)
				}
				if err := w.Fence(); err != nil {
					return err
				}
				for r := range n {
					part, err := w.Remote(r)
					if err != nil || len(part) != 10*r {
						return fmt.Errorf("Remote(%d): %d elements, %v", r, len(part), err)
					}
					for i, got := range part {
						if got != int32(100*r+i) {
							return fmt.Errorf("element %d of rank %d is %d", i, r, got)
						}
					}
				}
				return w.Fence()
			})
		})
	}
}

func TestWindowLocksExclude(t *testing.T) {
	const ranks, rounds = 4, 500
	onRanks(t, ranks, func(c *Comm) error {
		w, err := AllocateShared[int](c, 2)
		if err != nil {
			return err
		}
		defer w.Close()
		first, err := w.Remote(0)
		if err != nil {
			return err
		}
		for i := range rounds {
			g, err := w.Lock(LockExclusive, 0)
			if err != nil {
				return err
			}
			first[0]++
			first[1] += first[0]
			if err := g.Unlock(); err != nil {
				return err
			}
			if i%50 == c.Rank() {
				all, err := w.LockAll()
				if err != nil {
					return err
				}
				if want := first[0] * (first[0] + 1) / 2; first[1] != want {
					return fmt.Errorf("under LockAll: %d, want %d", first[1], want)
				}
				if err := all.Unlock(); err != nil {
					return err
				}
			}
		}
		if err := w.Fence(); err != nil {
			return err
		}
		if first[0] != ranks*rounds {
			return fmt.Errorf("%d rounds, want %d", first[0], ranks*rounds)
		}
		return w.Fence()
	})
}

func TestSharedRegionIsSharedOnANode(t *testing.T) {
	const n = 1000
	onRanks(t, 3, func(c *Comm) error {
		r, err := NewSharedRegion[float64](c, n)
		if err != nil {
			return err
		}
		defer r.Close()
		node := r.Node()
		if node.Size() != 3 || r.IsLeader() != (c.Rank() == 0) {
			return fmt.Errorf("node of %d ranks, leader %v", node.Size(), r.IsLeader())
		}
		lo, hi := n*node.Rank()/node.Size(), n*(node.Rank()+1)/node.Size()
		part, err := r.Range(lo, hi)
		if err != nil {
			return err
		}
		for i := range part {
			part[i] = float64(lo + i)
		}
		if err := r.Fence(); err != nil {
			return err
		}
		all, err := r.Slice()
		if err != nil || len(all) != n {
			return fmt.Errorf("Slice: %d elements, %v", len(all), err)
		}
		for i, x := range all {
			if x != float64(i) {
				return fmt.Errorf("element %d is %g", i, x)
			}
		}
		mut, err := r.MutSlice()
		if want := map[bool]int{true: n, false: 0}[r.IsLeader()]; err != nil || len(mut) != want {
			return fmt.Errorf("MutSlice: %d elements, want %d, %v", len(mut), want, err)
		}
		for _, bad := range [][2]int{{-1, 2}, {2, 1}, {0, n + 1}, {n + 1, n + 1}} {
			if _, err := r.Range(bad[0], bad[1]); !errors.Is(err, ErrBuffer) {
				return fmt.Errorf("Range(%d, %d): %v", bad[0], bad[1], err)
			}
		}
		return r.Fence()
	})
}

// Slurm gives the job less memory than the machine has.
func TestWindowsStayWithinTheJobsLimit(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "7")
	t.Setenv("SLURM_NODEID", "0")
	t.Setenv("SLURM_MEM_PER_NODE", "1000")
	onRanks(t, 2, func(c *Comm) error {
		for _, n := range []int{1, 1 << 30} {
			w, err := AllocateShared[byte](c, n)
			g, errRegion := NewSharedRegion[byte](c, n)
			for _, err := range []error{err, errRegion} {
				if n == 1 && err != nil || n > 1 && (!errors.Is(err, ErrAlloc) || !strings.Contains(err.Error(), "SLURM_MEM_PER_NODE gives the job 1000 MiB")) {
					return fmt.Errorf("%d bytes where the job has 1000 MiB: %v", n, err)
				}
			}
			if err := errors.Join(w.Close(), g.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestWindowTooLargeIsErrAlloc(t *testing.T) {
	onRanks(t, 2, func(c *Comm) error {
		n := 0
		if c.Rank() == 1 {
			n = math.MaxInt / 8
		}
		w, err := AllocateShared[float64](c, n)
		if !errors.Is(err, ErrAlloc) || w != nil {
			return fmt.Errorf("got %v", err)
		}
		t.Log(err)
		return c.Barrier() // c is in order
	})
}

func TestNilWindowReturnsErrWin(t *testing.T) {
	var w *Window[int]
	_, err1 := w.Local()
	_, err2 := w.Remote(0)
	_, err3 := w.Lock(LockShared, 0)
	_, err4 := w.LockAll()
	var r *SharedRegion[int]
	_, err5 := r.Slice()
	_, err6 := r.MutSlice()
	_, err7 := r.Range(0, 0)
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, w.Fence(), w.Sync(), r.Fence(),
		(*LockGuard)(nil).Flush(), (*LockGuard)(nil).Unlock(), (*LockAllGuard)(nil).Flush(0),
		(*LockAllGuard)(nil).FlushAll(), (*LockAllGuard)(nil).Unlock()} {
		if !errors.Is(err, ErrWin) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := errors.Join(w.Close(), r.Close()); err != nil || r.IsLeader() || r.Node() != nil {
		t.Error("a nil region:", err)
	}
}
