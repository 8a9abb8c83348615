//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// TestCloseReceivesAbandonedSends lets a rank abandon sends that nobody receives, and close.
// MPICH's MPI_Finalize waits for the messages, or ends the process, so Close receives them on all
// ranks. With Open MPI the job also ends, and if it ends badly the rank gets the reason.
func TestCloseReceivesAbandonedSends(t *testing.T) {
	skipShort(t, "sends that nobody receives")
	program("send left behind", sendLeftBehind)
	for _, library := range inTurn(t) {
		for _, level := range []string{"multiple", "funneled"} {
			e := start(t, library, 3, "send left behind", "COHORT_MPI_THREAD="+level)
			for rank := range 3 {
				e.has(t, fmt.Sprintf("rank %d has left", rank))
			}
			switch {
			case library == "mpich":
				e.must(t).has(t, "rank 1 has left: <nil>")
			case e.status != 0:
				e.has(t, owing)
			}
		}
	}
}

const owing = "a message of an abandoned send has not been received"

func sendLeftBehind() error {
	w, err := cohort.Init(background, nil)
	if err != nil {
		return err
	}
	c, err := w.Dup()
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		for _, send := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return cohort.Send(w.WithContext(ctx), make([]byte, 16_000), 0, 1) },
			func(ctx context.Context) error { return cohort.Ssend(w.WithContext(ctx), []byte{1}, 2, 2) },
			func(ctx context.Context) error { return cohort.Ssend(c.WithContext(ctx), make([]byte, 1<<20), 0, 3) },
		} {
			ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
			err := send(ctx)
			cancel()
			if !errors.Is(err, cohort.ErrTimeout) && !errors.Is(err, cohort.ErrBroken) {
				return fmt.Errorf("the send: %v", err)
			}
		}
	}
	if r, err := cohort.Irecv(c, make([]byte, 1), 1, 4); err == nil && w.Rank() != 1 {
		if _, err := r.Wait(); err == nil { // an error: the communicator is broken on all ranks, and none frees it
			return errors.New("a message was received on a broken communicator")
		}
	}
	if err := c.Close(); err != nil {
		return err
	}
	err = w.Close()
	say("rank %d has left: %v", w.Rank(), err)
	return err
}

// TestCloseDiscardsMessagesTakenAndNotReceived lets a rank take messages with Mprobe and end without receiving them, as
// it may without taking them. Only the sends that wait for the receive end with an error, at their deadline.
func TestCloseDiscardsMessagesTakenAndNotReceived(t *testing.T) {
	rank("takes messages", func(w *cohort.Comm) error {
		dup, err := w.Dup()
		for _, c := range []*cohort.Comm{w, dup} {
			for _, length := range []int{0, 8, 100_000} {
				if err != nil {
					return err
				}
				if w.Rank() == 1 {
					_, _, err = c.Mprobe(0, length)
					continue
				}
				ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
				err = cohort.Send(c.WithContext(ctx), make([]byte, length), 1, length)
				cancel()
				if length == 100_000 && errors.Is(err, cohort.ErrTimeout) {
					err = nil
				}
			}
		}
		return errors.Join(err, dup.Close())
	})
	inLibraries(t, func(t *testing.T, library string) {
		start(t, library, 2, "takes messages").must(t).hasNot(t, "not returned")
	})
}

// TestCloseEndsWhenRankNeverCloses lets a rank abandon a barrier that another rank never joins, and
// close: MPI_Finalize would wait for the other rank.
func TestCloseEndsWhenRankNeverCloses(t *testing.T) {
	skipShort(t, "a rank that never closes")
	program("never comes", neverComes)
	inLibraries(t, func(t *testing.T, library string) {
		t.Parallel() // all it does is wait: Close for seconds
		e := start(t, library, 2, "never comes", "COHORT_TIMEOUT=100ms")
		// The 500 ms follow 5 s in which the ranks have not met.
		e.failed(t, "rank 0 has left", "MPI_Finalize has not returned after 500ms,", "not heard from rank 1")
	})
}

func neverComes() error {
	w, err := cohort.Init(background, nil)
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		time.Sleep(2 * patience) // on purpose: it never closes, and the launcher ends it
		return nil
	}
	if err := w.Barrier(); !errors.Is(err, cohort.ErrTimeout) {
		return fmt.Errorf("the barrier: %v", err)
	}
	err = w.Close()
	say("rank %d has left: %v", w.Rank(), err)
	return err
}
