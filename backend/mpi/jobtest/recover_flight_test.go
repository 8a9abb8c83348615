//go:build cgo && linux

package jobtest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// recordedLate checks what the flight recorder has of the calls of late, on the world and on the
// communicator made from it: how they ended, and their numbers. A call that continues one whose
// time ran out keeps its number. A call that is rejected is not recorded.
func recordedLate(w *cohort.Comm) error {
	type note struct {
		Comm uint32
		Kind flight.Kind
		Seq  uint32
		Code byte
	}
	late, refused, apart := backend.Code(cohort.ErrTimeout), backend.Code(cohort.ErrNotSupported), backend.Code(cohort.ErrMismatch)
	var b bytes.Buffer
	if err := w.DumpFlight(&b); err != nil {
		return err
	}
	d, err := flight.Decode(b.Bytes())
	if err != nil {
		return err
	}
	var got []note
	for _, o := range d.Ops {
		if o.Kind != flight.Agree && o.Kind != flight.Shrink {
			continue
		}
		if o.State != flight.Done && o.State != flight.Failed || o.Peer != -1 || o.Begun.IsZero() {
			return fmt.Errorf("recorded as %+v", o)
		}
		got = append(got, note{min(o.Comm, 1), o.Kind, o.Seq, o.Code})
	}
	want := []note{
		{0, flight.Agree, 1, late}, {0, flight.Agree, 1, 0}, {0, flight.Shrink, 2, late}, {0, flight.Shrink, 2, 0},
		{1, flight.Agree, 1, 0}, {1, flight.Agree, 2, 0}, {1, flight.Shrink, 3, apart},
	}
	if w.Rank() == 0 {
		want = []note{{0, flight.Agree, 1, 0}, {0, flight.Shrink, 2, 0},
			{1, flight.Agree, 1, 0}, {1, flight.Agree, 2, refused}, {1, flight.Agree, 3, apart}}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("recorded: %+v, want %+v", got, want)
	}
	return nil
}
