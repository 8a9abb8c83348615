//go:build cgo && linux

package jobtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

func TestRecoveryIsNotSupported(t *testing.T) {
	rank("without", func(w *cohort.Comm) error {
		_, agree := w.Agree(1)
		_, shrink := w.Shrink()
		for op, err := range map[string]error{"agree": agree, "shrink": shrink, "revoke": w.Revoke()} {
			var o *cohort.OpError
			if !errors.Is(err, cohort.ErrNotSupported) || !errors.As(err, &o) || o.Op != op || !strings.Contains(err.Error(), " cannot continue after a loss") {
				return fmt.Errorf("%s: %v", op, err)
			}
		}
		if lost := w.Lost(); lost != nil {
			return fmt.Errorf("lost: %v", lost)
		}
		return traffic(w, 3) // the communicator still works
	})
	inLibraries(t, func(t *testing.T, name string) { start(t, name, 2, "without").must(t) })
}
