package local

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
)

// hooked is a communicator and a claimer of ids. They call hooks when this rank claims an id, and when it has made the
// communicator.
type hooked struct {
	agree.Comm
	claims, made func()
}

func (h *hooked) Propose(attempt, _ uint32) uint32 { return 7 + attempt }

func (h *hooked) Claim(uint32) (bool, error) {
	h.claims()
	return true, nil
}

func (h *hooked) Acknowledge(members []int, id uint32, lost []int) (backend.Comm, error) {
	made, err := h.Comm.Acknowledge(members, id, lost)
	h.made()
	return made, err
}

// Rank 3 is lost. Rank 2 is out of time in Shrink, after its message has gone out, and closes the communicator. The
// others' communicator is without it, or tells that it has closed its own.
func TestShrinkGivenUpByCloseDoesNotDelayOthers(t *testing.T) {
	for _, k := range []struct {
		name string
		hook func(h *hooked) *func()
		size int
		want error
	}{
		{"claim", func(h *hooked) *func() { return &h.claims }, 2, nil},
		{"made", func(h *hooked) *func() { return &h.made }, 3, backend.ErrPeerLost},
	} {
		t.Run(k.name, func(t *testing.T) {
			all := New(4)
			_ = all[0].(*Comm).Declare(3, backend.Faultf(backend.ErrPeerLost, "gone"))
			ctx, cancel := context.WithCancel(context.Background())
			closed := make(chan struct{})
			shrink := func(rank int, b *backend.Bound, hook func()) (backend.Comm, *Comm, error) {
				c, err := all[rank].(*Comm).Acknowledge([]int{0, 1, 2, 3}, 3, nil)
				if err != nil {
					return nil, nil, err
				}
				h := &hooked{Comm: c.(*Comm), claims: func() {}, made: func() {}}
				*k.hook(h) = hook
				h.Comm.(*Comm).Of = h
				made, _, err := c.(*Comm).Shrink(b, h)
				return made, c.(*Comm), err
			}
			ended := make(chan struct{})
			for rank, hook := range []func(){func() {}, func() { <-closed }} {
				go func() {
					defer func() { ended <- struct{}{} }()
					made, _, err := shrink(rank, nil, hook)
					if err != nil || made.Size() != k.size {
						t.Errorf("rank %d: Shrink: %v; want a communicator of %d", rank, err, k.size)
						return
					}
					b := &backend.Bound{Timeout: 10 * time.Second, Since: time.Now()}
					if _, err := made.(*Comm).Collective(b, &backend.Call{Coll: backend.Barrier, Root: -1}); !errors.Is(err, k.want) {
						t.Errorf("rank %d: Barrier: %v, want %v", rank, err, k.want)
					}
				}()
			}
			_, c, err := shrink(2, &backend.Bound{Ctx: ctx}, cancel)
			if !errors.Is(err, backend.ErrCanceled) {
				t.Errorf("rank 2: Shrink: %v, want ErrCanceled", err)
			}
			_ = c.Close()
			close(closed)
			<-ended
			<-ended
		})
	}
}
