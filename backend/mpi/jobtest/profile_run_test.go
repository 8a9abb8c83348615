//go:build cgo && linux

package jobtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestProfilingEnablesLibraryCounts checks that Config.Profiling makes Open MPI print its counts,
// which include the program's messages. Where the library has none, Diagnostics reports that.
func TestProfilingEnablesLibraryCounts(t *testing.T) {
	skipShort(t, "Open MPI's own statistics")
	const sends, size = 7, 100
	rank("counted", func(w *cohort.Comm) error {
		for _, line := range w.Diagnostics() {
			say("line %s", line)
		}
		for i := range sends {
			if w.Rank() == 0 {
				must.OK(cohort.Send(w, make([]byte, size), 1, i))
			} else if _, err := cohort.Recv(w, make([]byte, size), 0, i); err != nil {
				return err
			}
		}
		return nil
	})
	t.Run("openmpi", func(t *testing.T) {
		start(t, "openmpi", 2, "counted").must(t).hasNot(t, "POINT TO POINT", "Profiling")
		e := start(t, "openmpi", 2, "counted", "COHORT_MPI_PROFILE=1").must(t)
		e.has(t, "line OMPI_MCA_pml_monitoring_enable=1: Profiling\n")
		// E has all messages from one rank to another, C those of collectives.
		find := func(kind string, from, to int) (bytes, messages int, ok bool) {
			_, rest, _ := strings.Cut(e.out, fmt.Sprintf("%s\t%d\t%d\t", kind, from, to))
			_, err := fmt.Sscanf(rest, "%d bytes\t%d msgs sent", &bytes, &messages)
			return bytes, messages, err == nil
		}
		of := func(kind string, from, to int) (bytes, messages int) {
			bytes, messages, ok := find(kind, from, to)
			if !ok {
				t.Errorf("no line for %s from %d to %d", kind, from, to)
			}
			return bytes, messages
		}
		torn := func() bool { // the launcher mixes the output of two ranks
			for _, kind := range []string{"E", "C"} {
				for from := range 2 {
					if _, _, ok := find(kind, from, 1-from); !ok {
						return true
					}
				}
			}
			return false
		}
		for tries := 1; torn() && tries < 5; tries++ {
			e = start(t, "openmpi", 2, "counted", "COHORT_MPI_PROFILE=1").must(t)
		}
		own := func(from, to int) (bytes, messages int) {
			b, m := of("E", from, to)
			cb, cm := of("C", from, to)
			return b - cb, m - cm
		}
		there, sent := own(0, 1)
		back, answered := own(1, 0) // the library's own messages carry no data
		if there != sends*size || back != 0 || sent-answered != sends {
			t.Errorf("the library counts %d messages of %d bytes from rank 0, and %d of %d from rank 1, want %d of %d more from rank 0\n%s",
				sent, there, answered, back, sends, sends*size, e.out)
		}
	})
	t.Run("mpich", func(t *testing.T) {
		e := start(t, "mpich", 2, "counted", "COHORT_MPI_PROFILE=1").must(t)
		if n := strings.Count(e.out, "line Profiling sets nothing"); n != 2 {
			t.Errorf("%d of 2 ranks report that Profiling sets nothing:\n%s", n, e.out)
		}
	})
}
