package cohorttest

import (
	"bytes"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// The flight recorder of every backend.

func recorderScenarios() []scenario {
	return []scenario{
		{name: "recorder/waiting", sizes: atLeast(2), body: recordedWaits},
	}
}

// recordedWaits has rank 0 wait in operations of each kind for others that come late, and finds out
// from the recorder since when.
func recordedWaits(r *Rank) {
	c := r.Comm
	x, y := make([]int64, 3), make([]int64, 3)
	for _, op := range []struct {
		kind            flight.Kind
		waits, answered func() error // on rank 0, and on rank 1; by all, where the second is nil
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
		{flight.Kind(backend.Allgatherv), func() error {
			// Something from everybody: for less a library need not wait.
			counts, displs := make([]int, r.Size), make([]int, r.Size)
			for i := range counts {
				counts[i], displs[i] = 1, i
			}
			return cohort.Allgatherv(c, x[:1], make([]int64, r.Size), counts, displs)
		}, nil},
	} {
		// How long the others are late. On a busy machine rank 0 may not come to wait before they do.
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
				known[0] = waited(r, op.kind, began, time.Now(), late/2)
			}
			r.OK(cohort.Bcast(c, known, 0))
			if known[0] {
				break
			}
			if late > 5*time.Second {
				r.Errorf("the recorder does not know since when rank 0 waited in %v", op.kind)
				break
			}
		}
	}
}

// sampled is how many operations there are to one that gets the time in any case.
const sampled = 4

// waited reports whether the recorder has the last operation of a kind, and that it began after began
// and at least some time before ended.
func waited(r *Rank, kind flight.Kind, began, ended time.Time, least time.Duration) bool {
	var b bytes.Buffer
	r.OK(r.Comm.DumpFlight(&b))
	d, err := flight.Decode(b.Bytes())
	r.OK(err)
	for _, o := range slices.Backward(d.Ops) {
		if o.Kind == kind {
			const reading = time.Millisecond // the recorder's clock is not the one of time.Now
			if o.Ticket%sampled == 0 {
				return false // it may have the time without having waited
			}
			return !o.Begun.IsZero() && o.Begun.After(began.Add(-reading)) && ended.Sub(o.Begun) > least
		}
	}
	r.Errorf("no %v among %d operations", kind, len(d.Ops))
	return false
}
