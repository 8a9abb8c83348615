package cohorttest

import (
	"bytes"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// The flight recorder, which every backend reports waits to.

// recordedWaits has rank 0 wait in operations of each kind for ranks that are late, and
// checks that the recorder has the time at which the wait began.
func recordedWaits(r *Rank) {
	c := r.Comm
	x, y := make([]int64, 3), make([]int64, 3)
	for _, op := range []struct {
		kind            flight.Kind
		waits, answered func() error // on rank 0, and on rank 1; if the second is nil, all call the first
	}{
		{flight.Recv, func() error { _, err := cohort.Recv(c, x, 1, 0); return err }, func() error { return cohort.Send(c, x, 0, 0) }},
		{flight.Ssend, func() error { return cohort.Ssend(c, x, 1, 0) }, func() error { _, err := cohort.Recv(c, x, 0, 0); return err }},
		{
			flight.Sendrecv,
			func() error { _, err := cohort.Sendrecv(c, x, 1, 0, y, 1, 0); return err },
			func() error { _, err := cohort.Sendrecv(c, x, 0, 0, y, 0, 0); return err },
		},
		{flight.Kind(backend.Barrier), c.Barrier, nil},
		{flight.Kind(backend.Allreduce), func() error { return cohort.Allreduce(c, x, y, cohort.Sum) }, nil},
	} {
		// How late the others are. On a busy machine rank 0 may begin to wait after they arrive.
		for late := 30 * time.Millisecond; ; late *= 2 {
			r.OK(c.Barrier())
			if r.Rank != 0 {
				time.Sleep(late)
			}
			began := time.Now()
			switch {
			case r.Rank == 0 || op.answered == nil:
				r.OK(op.waits())
			case r.Rank == 1:
				r.OK(op.answered())
			}
			known := make([]bool, 1)
			if r.Rank == 0 {
				known[0] = recorded(r, op.kind, began, time.Now(), late/2)
			}
			r.OK(cohort.Bcast(c, known, 0))
			if known[0] {
				break
			}
			if late > 5*time.Second {
				r.Errorf("the recorder has no time at which rank 0 began to wait in %v", op.kind)
				break
			}
		}
	}
}

// recorded reports whether the recorder has the last operation of a kind with the time at
// which it began: after began, and at least a given time before ended.
func recorded(r *Rank, kind flight.Kind, began, ended time.Time, least time.Duration) bool {
	var b bytes.Buffer
	r.OK(r.Comm.DumpFlight(&b))
	d := must(flight.Decode(b.Bytes()))
	for _, o := range slices.Backward(d.Ops) {
		if o.Kind == kind {
			const reading = time.Millisecond // the recorder's clock is not the one of time.Now
			if o.Ticket%4 == 0 {
				return false // every fourth has the time even if it has not waited
			}
			return !o.Begun.IsZero() && o.Begun.After(began.Add(-reading)) && ended.Sub(o.Begun) > least
		}
	}
	r.Errorf("no %v among %d operations", kind, len(d.Ops))
	return false
}
