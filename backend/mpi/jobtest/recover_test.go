//go:build cgo && linux

package jobtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func TestRecoveryIsNotSupported(t *testing.T) {
	rank("without", func(w *cohort.Comm) error {
		_, agree := w.Agree(1)
		_, shrink := w.Shrink()
		for op, err := range map[string]error{"agree": agree, "shrink": shrink, "revoke": w.Revoke()} {
			var o *cohort.OpError
			if !errors.Is(err, cohort.ErrNotSupported) || !errors.As(err, &o) || o.Op != op || !strings.Contains(err.Error(), "cannot continue after a failure; use local, shm or tcp") {
				return fmt.Errorf("%s: %v", op, err)
			}
		}
		if lost := w.Lost(); lost != nil {
			return fmt.Errorf("lost: %v", lost)
		}
		// The recorder has no refused call. A report would say that the rank was in that call.
		var b bytes.Buffer
		must.OK(w.DumpFlight(&b))
		d, err := flight.Decode(b.Bytes())
		if err != nil || slices.ContainsFunc(d.Ops, func(o flight.Operation) bool { return o.Kind == flight.Agree || o.Kind == flight.Shrink }) {
			return fmt.Errorf("the recorder has %v, %w", d.Ops, err)
		}
		return traffic(w, 3) // the communicator still works
	})
	inLibraries(t, func(t *testing.T, name string) { start(t, name, 2, "without").must(t) })
}
