package sched_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/view"
)

// namesRank2 matches an error that names rank 2, alone or in a run of ranks.
var namesRank2 = regexp.MustCompile(` (2|[01]-[2-9])( |,|-|$)`)

var _ backend.Operation = (*sched.Op)(nil)

// All ranks learn whether one can end the call early, whichever it is, and the
// call that follows without a check moves the data.
func TestAgreeReportsWhetherACallCanEndEarly(t *testing.T) {
	limit := &backend.Bound{Timeout: time.Hour}
	for _, n := range sizes {
		for limited := -1; limited < n; limited++ { // -1: none
			noErrors(t, ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
				var b *backend.Bound
				if bc.Rank() == limited {
					b = limit
				}
				x := []int64{int64(bc.Rank())}
				call := inPlace(0, x, sum)
				bounded, err := r.Agree(b, call)
				if err != nil || bounded != (limited >= 0) {
					return fmt.Errorf("%d ranks, %d limited: bounded %v, %v", n, limited, bounded, err)
				}
				if x[0] != int64(bc.Rank()) {
					return fmt.Errorf("the data were touched: %d", x[0])
				}
				if err := r.Run(b, call, false); err != nil || x[0] != int64(n*(n-1)/2) {
					return fmt.Errorf("the call: %v, got %d", err, x[0])
				}
				// The next call's ranks have no limits again.
				if bounded, err := r.Agree(nil, barrier(1)); bounded || err != nil {
					return fmt.Errorf("the next call: bounded %v, %v", bounded, err)
				}
				return nil
			}))
		}
	}
}

// The other ranks find a difference when one agrees that another runs, or starts,
// a different call: all ways exchange the same messages.
func TestAgreeFindsDifferentCalls(t *testing.T) {
	for _, n := range sizes[1:] {
		for _, form := range []backend.Form{backend.Blocking, backend.Nonblocking} {
			odd := inPlace(0, []int64{1}, maxOp)
			odd.Form = form
			errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
				if bc.Rank() < n-1 {
					_, err := r.Agree(nil, inPlace(0, []int64{1}, sum))
					return err
				}
				if form == backend.Blocking {
					return r.Run(nil, odd, true)
				}
				o := must.Get(r.Start(odd))
				must.OK(sched.Wait(nil, o))
				return o.Err()
			})
			want := backend.Mismatch(0, inPlace(0, []int64{1}, sum).Fingerprint(), n-1, odd.Fingerprint()).Error()
			for rank, err := range errs {
				if err == nil || err.Error() != want {
					t.Errorf("%d ranks, rank %d: got %v, want %v", n, rank, err, want)
				}
			}
		}
	}
}

// Argument errors have the rules they have in Run.
func TestAgreeArgumentErrors(t *testing.T) {
	bad := func(seq uint32) *backend.Call {
		c := allreduce(seq, nil, nil, sum)
		c.Err = &backend.Fault{Sentinel: backend.ErrCount, Text: "made up"}
		return c
	}
	const n = 3
	errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
		_, err := r.Agree(nil, bad(0))
		if !errors.Is(err, backend.ErrCount) || bc.Broken() != nil {
			return fmt.Errorf("all wrong alike: %v, broken %v", err, bc.Broken())
		}
		call := allreduce(1, []int64{1}, []int64{1}, sum)
		if bc.Rank() == 1 {
			call = bad(1)
		}
		_, err = r.Agree(nil, call)
		return err
	})
	for rank, err := range errs {
		want := backend.ErrMismatch
		if rank == 1 {
			want = backend.ErrCount
		}
		if !errors.Is(err, want) {
			t.Errorf("rank %d: got %v, want %v", rank, err, want)
		}
	}
}

// A rank that does not come is named, and a rank without a limit of its own
// learns of it too.
func TestAgreeNamesTheMissingRank(t *testing.T) {
	const n = 4
	release := make(chan struct{})
	var others sync.WaitGroup
	others.Add(n - 1)
	go func() { others.Wait(); close(release) }()
	errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
		var b *backend.Bound
		switch bc.Rank() {
		case 2:
			<-release
			_, err := r.Agree(nil, barrier(0))
			return err
		case 0:
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			b = &backend.Bound{Ctx: ctx}
		}
		defer others.Done()
		_, err := r.Agree(b, barrier(0))
		return err
	})
	for rank, err := range errs {
		if !errors.Is(err, backend.ErrTimeout) || errors.Is(err, backend.ErrBroken) != (rank == 2) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if err := errs[0]; err == nil || !namesRank2.MatchString(err.Error()) {
		t.Errorf("rank 0 does not name rank 2: %v", err)
	}
}

func TestAgreeDoesNotAllocate(t *testing.T) {
	const runs = 100
	noErrors(t, ranks(t, 2, func(bc backend.Comm, r *sched.Runner) error {
		x := []int64{1}
		seq := uint32(0)
		call := &backend.Call{}
		agree := func() {
			*call = backend.Call{Coll: backend.Allreduce, InPlace: true, Root: -1, Op: sum, Type: int64s, Count: 1, Recv: view.Bytes(x), Seq: seq}
			seq++
			if _, err := r.Agree(nil, call); err != nil {
				t.Error(err)
			}
			if err := r.Run(nil, call, false); err != nil {
				t.Error(err)
			}
		}
		for range 20 { // the backend fills its pools
			agree()
		}
		if bc.Rank() != 0 {
			for range runs + 1 { // AllocsPerRun warms up once
				agree()
			}
			return nil
		}
		if a := testing.AllocsPerRun(runs, agree); a > 0.5 && !racing {
			t.Errorf("Agree and Run allocate %v times", a)
		}
		return nil
	}))
}
