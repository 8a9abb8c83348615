//go:build cgo && linux

package jobtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// TestCommunicatorsWithUntestedSendsAreFreed checks that a communicator is freed if all its
// messages were received, even if nobody has waited for the sends. Libraries have a few thousand
// communicators.
func TestCommunicatorsWithUntestedSendsAreFreed(t *testing.T) {
	skipShort(t, "communicators are freed though nobody waited for sends")
	rank("to oneself", func(w *cohort.Comm) error {
		for range 20 {
			d, err := w.Split(w.Rank(), 0)
			if err != nil {
				return err
			}
			err = cohort.Send(d, []int{1}, 0, 1)
			_, err2 := cohort.Recv(d, make([]int, 1), 0, 1)
			if err = errors.Join(err, err2, d.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	inLibraries(t, func(t *testing.T, name string) {
		tool := compiledTool(t, name, orderTool)
		e := start(t, name, 2, "to oneself", "LD_PRELOAD="+tool).must(t)
		if got := e.lines("finalize"); len(got) != 2 || !strings.HasPrefix(got[0], "0 ") || !strings.HasPrefix(got[1], "0 ") {
			t.Errorf("at the end: (communicators, same thread, Barrier) %q, want no communicators\n%s", got, e.out)
		}
	})
}
