package sched_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/view"
)

// pair returns a call in which ranks 0 and 1 are neighbors, and the others have none.
func pair(rank int, seq uint32, typ *backend.Datatype, send, recv []int64) *backend.Call {
	call := &backend.Call{Coll: backend.NeighborAllgather, Root: -1, Type: typ, Seq: seq, Neighbors: &backend.Neighbors{}}
	if rank < 2 {
		call.Send, call.Recv = view.Bytes(send), view.Bytes(recv)
		call.Neighbors = &backend.Neighbors{Sources: []int{1 - rank}, Destinations: []int{1 - rank}}
	}
	return call
}

// Neighbors exchange data although the other ranks have not come, as often as they may be ahead, but not with CheckAll.
func TestNeighborsDoNotWaitForOtherRanks(t *testing.T) {
	const n, ahead = 4, 3
	for _, all := range []bool{false, true} {
		gone := make(chan struct{}, 2)
		errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			r.CheckAll = all
			if bc.Rank() >= 2 {
				<-gone
				gone <- struct{}{}
				return nil
			}
			defer func() { gone <- struct{}{} }()
			for seq := range uint32(10) {
				got := []int64{-1}
				b := &backend.Bound{Timeout: time.Minute}
				if all || seq == ahead {
					b.Timeout = 20 * time.Millisecond
				}
				if err := r.Run(b, pair(bc.Rank(), seq, int64s, []int64{int64(10*int(seq) + bc.Rank())}, got), true); err != nil {
					if !errors.Is(err, backend.ErrTimeout) || all != (seq == 0) || !all && seq != ahead {
						return fmt.Errorf("call %d: %w", seq, err)
					}
					return nil
				}
				if want := int64(10*int(seq) + 1 - bc.Rank()); got[0] != want {
					return fmt.Errorf("call %d: got %d, want %d", seq, got[0], want)
				}
			}
			return errors.New("never waited for the ranks that do not come")
		})
		for r, err := range errs {
			if err != nil {
				t.Errorf("CheckAll %v, rank %d: %v", all, r, err)
			}
		}
	}
}

// A rank that receives a wrong length returns the error although a rank that is no neighbor has not come.
func TestWrongLengthIsFoundWithoutOtherRanks(t *testing.T) {
	const n = 3
	found := make(chan struct{})
	errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
		call := pair(bc.Rank(), 0, int64s, make([]int64, 2), make([]int64, 2))
		switch bc.Rank() {
		case 0:
			call.Send = call.Send[:8]
		case 1:
			defer close(found)
		default:
			<-found
		}
		must.OK(r.Run(&backend.Bound{Timeout: time.Minute}, call, true))
		return r.Run(nil, barrier(1), true)
	})
	for r, err := range errs {
		if !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "rank 0 sent 1 elements, rank 1 expects 2") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Ranks that do not wait learn of a mismatch from their next call, or when they quiesce.
func TestMismatchAmongNeighborsIsFoundLater(t *testing.T) {
	const n = 4
	float := &backend.Datatype{Kind: backend.Float64, Size: 8, Name: "float64", ID: uint32(backend.Float64)}
	for _, quiesce := range []bool{false, true} {
		errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			typ := int64s
			if bc.Rank() == 3 {
				typ = float
			}
			err := r.Run(nil, pair(bc.Rank(), 0, typ, []int64{1}, []int64{0}), true)
			if err == nil && quiesce {
				return r.Quiesce(time.Second)
			} else if err == nil {
				return r.Run(nil, barrier(1), true)
			}
			return err
		})
		for r, err := range errs {
			if !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "rank 0 called NeighborAllgather(type int64), rank 3 called NeighborAllgather(type float64)") {
				t.Errorf("quiesce %v, rank %d: %v", quiesce, r, err)
			}
		}
	}
}

// A rank that is ahead of the others and has left the communicator does not disturb their last calls: neighbors need
// not exchange anything with it.
func TestNeighborsGoOnWhenAnotherRankHasLeft(t *testing.T) {
	for _, n := range []int{3, 4, 5, 8} {
		for _, early := range []int{2, n - 1} {
			left := make(chan struct{})
			noErrors(t, ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
				if bc.Rank() != early {
					<-left
				} else {
					defer close(left)
				}
				for seq := range uint32(2) {
					got := []int64{-1}
					if err := r.Run(&backend.Bound{Timeout: time.Minute}, pair(bc.Rank(), seq, int64s, []int64{int64(bc.Rank())}, got), true); err != nil {
						return fmt.Errorf("%d ranks, rank %d has left, call %d: %w", n, early, seq, err)
					}
					if bc.Rank() < 2 && got[0] != int64(1-bc.Rank()) {
						return fmt.Errorf("call %d: got %d", seq, got[0])
					}
				}
				if bc.Rank() == early {
					return bc.Close()
				}
				return r.Quiesce(time.Second)
			}))
		}
	}
}

// A rank that leaves the communicator before a call that the others make is an error of all.
func TestRankThatLeavesBeforeNeighborsCallIsFound(t *testing.T) {
	const n = 5
	left := make(chan struct{})
	errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
		if bc.Rank() == n-1 {
			defer close(left)
			return bc.Close()
		}
		<-left
		err := r.Run(nil, pair(bc.Rank(), 0, int64s, []int64{1}, []int64{0}), true)
		return errors.Join(err, r.Quiesce(time.Second), bc.Broken())
	})
	for r, err := range errs[:n-1] {
		if !errors.Is(err, backend.ErrPeerLost) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A rank that has no neighbors learns of a wrong length between others: from Wait, and of a blocking call from Quiesce.
func TestWrongLengthIsToldToOtherRanks(t *testing.T) {
	for i := range 45 {
		form := backend.Form(i % 3)
		for r, err := range ranks(t, 4, func(bc backend.Comm, r *sched.Runner) error {
			call := pair(bc.Rank(), 0, int64s, make([]int64, 1+(bc.Rank()+1)%2), []int64{0})
			call.Form = form
			if form == backend.Blocking {
				return errors.Join(r.Run(nil, call, true), r.Quiesce(time.Second))
			}
			start := r.Start
			if form == backend.Persistent {
				start = r.Prepare
			}
			o := must.Get(start(call))
			if form == backend.Persistent {
				o.Start()
			}
			return errors.Join(sched.Wait(nil, o), o.Err())
		}) {
			if !errors.Is(err, backend.ErrMismatch) {
				t.Fatalf("form %v, rank %d: %v, want ErrMismatch", form, r, err)
			}
		}
	}
}

// The first start of a persistent operation compares the lengths, and the later ones do not wait for ranks that are no
// neighbors.
func TestPersistentNeighborsCompareLengthsOnce(t *testing.T) {
	const n, starts = 4, 5
	ended := make(chan struct{})
	noErrors(t, ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
		b, got := &backend.Bound{Timeout: time.Minute}, []int64{0}
		o := must.Get(r.Prepare(pair(bc.Rank(), 0, int64s, []int64{int64(bc.Rank())}, got)))
		for i := range starts {
			if i > 0 && bc.Rank() == n-1 {
				<-ended
			}
			o.Start()
			if err := errors.Join(sched.Wait(b, o), o.Err()); err != nil {
				return fmt.Errorf("start %d: %w", i, err)
			}
		}
		if bc.Rank() == 0 {
			close(ended)
		}
		return nil
	}))
}
