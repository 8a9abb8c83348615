//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/test/far"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func init() {
	cohort.Register("far", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		c, err := mpi.Open(ctx, mpi.Config{Check: s.Check})
		return far.Comm{Comm: c}, err
	})
}

// TestOnesidedWindowsPassSuite runs the conformance suite's one-sided windows on ranks of one node, and by messages. With -short it leaves
// those of one node to TestConformanceMPICH and TestConformanceOpenMPI, and leaves out those that take long and show as
// much over sockets.
func TestOnesidedWindowsPassSuite(t *testing.T) {
	cohorttest.Become()
	rows, long := []string{"far", "mpi"}, []string(nil)
	if testing.Short() {
		rows, long = rows[:1], []string{"onesided/close-in-use", "onesided/operations", "onesided/messages", "onesided/put-get", "onesided/reductions"}
	}
	matrix(t, rows, func(t *testing.T, name, b string) {
		l := launcher(t, name, "COHORT_BACKEND="+b, "COHORT_CHECK=1")
		cohorttest.Some(t, l, 2, func(s string) bool { return strings.Contains(s, "onesided") && !slices.Contains(long, s) })
	})
}

// TestWindowsAcrossNodesAreFreed checks that Close frees the communicators of a window. MPICH has 2048, and Open MPI more
// than a test can use.
func TestWindowsAcrossNodesAreFreed(t *testing.T) {
	skipShort(t, "windows across nodes are freed")
	rank("windows", func(w *cohort.Comm) error {
		for i := range 1100 {
			win, err := cohort.NewWindow[int64](w, 1)
			if err == nil {
				err = win.Put([]int64{1}, 1-w.Rank(), 0)
			}
			var g *cohort.LockGuard
			if err == nil {
				g, err = win.Lock(cohort.LockExclusive, 1-w.Rank())
			}
			if err == nil {
				err = g.Unlock()
			}
			if err == nil {
				err = win.Close()
			}
			if err != nil {
				return fmt.Errorf("window %d: %w", i, err)
			}
		}
		return nil
	})
	start(t, "mpich", 2, "windows", "COHORT_BACKEND=far").must(t)
}

// TestRgetEndsWhenCommunicatorIsClosed checks that an Rget of a part on another node, whose rank has closed the
// communicator and does not answer, ends when this rank closes it too.
func TestRgetEndsWhenCommunicatorIsClosed(t *testing.T) {
	rank("unanswered", func(w *cohort.Comm) error {
		d := must.Get(w.Dup())
		win, err := cohort.NewWindow[int64](d, 100)
		if err == nil && w.Rank() == 0 {
			err = d.Close()
		}
		if err = errors.Join(err, w.Barrier()); err != nil || w.Rank() == 0 {
			return err
		}
		req := must.Get(win.Rget(make([]int64, 100), 0, 0))
		ended := make(chan error, 1)
		go func() { ended <- second(req.Wait()) }()
		err = d.Close()
		select {
		case e := <-ended:
			if !errors.Is(e, cohort.ErrClosed) {
				err = errors.Join(err, fmt.Errorf("got %v, want ErrClosed", e))
			}
		case <-time.After(20 * time.Second):
			err = errors.Join(err, errors.New("the Rget goes on after Close"))
		}
		return err
	})
	matrix(t, []string{"Rget"}, func(t *testing.T, library, _ string) {
		start(t, library, 2, "unanswered", "COHORT_BACKEND=far").must(t)
	})
}
