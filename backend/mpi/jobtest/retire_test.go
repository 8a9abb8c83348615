//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestMessageOfClosedCommunicatorIsNotReceivedLater checks that a message that nobody has received on a communicator is
// not received on one that is made after all ranks have closed the first. Libraries give the second the same context id.
func TestMessageOfClosedCommunicatorIsNotReceivedLater(t *testing.T) {
	rank("early", func(w *cohort.Comm) error { return unreceived(w, false) })
	rank("late", func(w *cohort.Comm) error { return unreceived(w, true) })
	matrix(t, []string{"early", "late"}, func(t *testing.T, name, when string) { start(t, name, 2, when).must(t) })
}

// unreceived sends messages that nobody receives on communicators that both ranks close: early, before rank 1 closes
// the communicator, or late, afterwards. Some are sent at once, some only when they are received.
func unreceived(w *cohort.Comm, late bool) error {
	me := w.Rank()
	for k, length := range []int{1, 1, 1000, 100_000} {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		if me == 1 {
			// An ordinary way to leave a message behind: the receive ends at its deadline.
			ctx, cancel := context.WithTimeout(background, 100*time.Microsecond)
			_, err := cohort.Recv(d.WithContext(ctx), make([]int, 1), 0, k)
			cancel()
			if !errors.Is(err, cohort.ErrTimeout) {
				return err
			}
			if late {
				if err := d.Close(); err != nil {
					return err
				}
			}
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		if me == 0 {
			out := make([]int, length)
			out[0] = 1000 + k
			q, err := cohort.Isend(d, out, 1, k)
			if err != nil {
				return err
			}
			if len(out) == 1 { // the library sends the others when they are received
				if _, err := q.Wait(); err != nil {
					return err
				}
			}
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		if err := forgetful(d.Close()); err != nil {
			return err
		}
		for i := range 3 {
			e, err := w.Dup()
			if err != nil {
				return err
			}
			got := make([]int, 100_000)
			if me == 0 {
				err = cohort.Send(e, []int{2000 + k}, 1, k)
			} else if _, err = cohort.Recv(e, got, 0, k); err == nil && got[0] != 2000+k {
				err = fmt.Errorf("round %d, communicator %d: received %d of the communicator closed before, want %d", k, i, got[0], 2000+k)
			}
			if err := errors.Join(err, e.Close()); err != nil {
				return err
			}
		}
	}
	return forgetful(w.Close())
}

// TestCommunicatorsWithUnreceivedMessagesAreFreed makes more communicators than MPICH has contexts (about 2000, of which
// each takes two), and leaves a message behind on each. Some of them break. Then it makes more at a time than MPICH allows.
func TestCommunicatorsWithUnreceivedMessagesAreFreed(t *testing.T) {
	rank("many", func(w *cohort.Comm) error {
		for k := range 1200 {
			d, err := w.Dup()
			if err != nil {
				return fmt.Errorf("communicator %d: %w", k, err)
			}
			must.OK(cohort.Send(d, []int{k}, 1-w.Rank(), 0))
			if k%8 == 0 && w.Rank() == 0 { // nobody takes part in this
				ctx, cancel := context.WithTimeout(background, time.Microsecond)
				err := cohort.Ssend(d.WithContext(ctx), []int{k}, 1, 1)
				cancel()
				if !errors.Is(err, cohort.ErrTimeout) {
					return fmt.Errorf("a send that nobody receives: %v", err)
				}
			}
			must.OK(d.Close())
		}
		if !strings.Contains(w.Caps().Library, "MPICH") {
			return nil // Open MPI allows 32765, which take a minute
		}
		for range 1100 {
			if _, err := w.Dup(); errors.Is(err, cohort.ErrAlloc) {
				return nil
			} else if err != nil {
				return err
			}
		}
		return errors.New("no end of communicators")
	})
	matrix(t, []string{"many"}, func(t *testing.T, name, program string) { start(t, name, 2, program).must(t) })
}
