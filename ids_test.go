package cohort

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The test sets one rank near the last context id, because a test cannot make that many
// communicators. The last ids are used. After that, every way to make a communicator returns an
// error on all ranks, each time, and existing communicators still work.
func TestContextIDsRunOut(t *testing.T) {
	const n, left = 3, 2
	ranks(t, n, func(w *Comm) error {
		if w.Rank() == 1 {
			w.core.job.ids.next = controlID - left
		}
		var last *Comm
		for i := range left {
			d, err := w.Dup()
			if err != nil {
				return fmt.Errorf("%d from the end: %w", left-i, err)
			}
			if want := uint32(controlID - left + i); d.core.id != want {
				t.Errorf("rank %d: a communicator has number %#x, want %#x", w.Rank(), d.core.id, want)
			}
			last = d
		}
		for range 2 {
			for _, c := range []*Comm{w, last} {
				for i, make := range []func() (*Comm, error){
					c.Dup,
					func() (*Comm, error) { return c.Split(c.Rank()%2, 0) },
					c.SplitShared,
					func() (*Comm, error) { return c.CreateGroup(c.Group(), 0) },
					func() (*Comm, error) {
						_, err := c.CartCreate([]int{n}, []bool{false}, false)
						return nil, err
					},
					c.Shrink,
				} {
					_, err := make()
					if !errors.Is(err, ErrAlloc) || !strings.Contains(err.Error(), "2147483648") {
						t.Errorf("rank %d, way %d: %v, want ErrAlloc with how many there were", w.Rank(), i, err)
					}
				}
				sum := []int{0}
				if err := Allreduce(c, []int{1 << w.Rank()}, sum, Sum); err != nil || sum[0] != 7 {
					return fmt.Errorf("a sum is %d afterwards, want 7: %w", sum[0], err)
				}
				if all, err := c.Agree(^(1 << w.Rank())); err != nil || all != ^7 {
					return fmt.Errorf("%b is agreed on afterwards, want %b: %w", all, ^7, err)
				}
			}
		}
		return last.Close()
	})
}
