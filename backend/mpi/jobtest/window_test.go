//go:build cgo && linux

package jobtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestAccessEndsWhenCommunicatorIsClosed accesses a window on another node whose rank has closed the communicator, and so does
// not answer any more. MPICH can make each process a node.
func TestAccessEndsWhenCommunicatorIsClosed(t *testing.T) {
	rank("accesses", func(w *cohort.Comm) error {
		near, err := w.SplitShared()
		must.OK(err)
		if near.Size() != 1 {
			return errors.New("the ranks are on one node")
		}
		d, err := w.Dup()
		must.OK(errors.Join(err, near.Close()))
		win, err := cohort.NewWindow[int](d, 1)
		must.OK(err)
		if w.Rank() == 1 {
			_, err := cohort.Recv(w, make([]int, 1), 0, 1)
			return errors.Join(err, d.Close(), cohort.Send(w, []int{1}, 0, 1))
		}
		ended := make(chan error, 1)
		_, err = win.FetchAndOp(1, 1, 0, cohort.Sum)
		must.OK(err)
		go func() {
			var err error
			for err == nil {
				_, err = win.FetchAndOp(1, 1, 0, cohort.Sum)
			}
			ended <- err
		}()
		must.OK(cohort.Send(w, []int{1}, 1, 1))
		_, err = cohort.Recv(w, make([]int, 1), 1, 1)
		must.OK(errors.Join(err, d.Close()))
		if err := <-ended; !errors.Is(err, cohort.ErrClosed) {
			return fmt.Errorf("the access ended with %w, want ErrClosed", err)
		}
		return nil
	})
	start(t, "mpich", 2, "accesses", "MPIR_CVAR_NOLOCAL=1").must(t)
}
