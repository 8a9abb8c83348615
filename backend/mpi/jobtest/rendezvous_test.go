//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// TestDeadlineHoldsWhenShortMessagesNeedTheirReceiver sets the libraries so that a short message is sent only once it is
// received, and received only with its sender's help. Rank 0 does not take part in a Barrier of rank 1, which learns of
// that at its deadline, notifies rank 0, and stops before rank 0 has received the notice.
func TestDeadlineHoldsWhenShortMessagesNeedTheirReceiver(t *testing.T) {
	rank("stops", stops)
	inLibraries(t, func(t *testing.T, library string) {
		start(t, library, 2, "stops", "COHORT_CHECK=1", "UCX_RNDV_THRESH=0", "UCX_TLS=posix,self",
			"OMPI_MCA_btl_vader_eager_limit=64", "OMPI_MCA_btl_vader_single_copy_mechanism=none").must(t)
	})
}

func stops(w *cohort.Comm) error {
	pid := []int{os.Getpid()}
	if err := cohort.Bcast(w, pid, 1); err != nil {
		return err
	}
	d, err := w.Dup()
	if err != nil {
		return err
	}
	limited := func(limit time.Duration, f func(c *cohort.Comm) error) error {
		ctx, cancel := context.WithTimeout(background, limit)
		defer cancel()
		if err := f(d.WithContext(ctx)); !errors.Is(err, cohort.ErrTimeout) { // also in the notice
			return fmt.Errorf("a call that ends at its deadline: %v", err)
		}
		return nil
	}
	if w.Rank() == 1 {
		if err = limited(50*time.Millisecond, (*cohort.Comm).Barrier); err == nil {
			err = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		return errors.Join(err, w.Barrier())
	}
	time.AfterFunc(20*time.Second, func() {
		say("the ranks have not ended after 20 s")
		os.Exit(1)
	})
	err = limited(500*time.Millisecond, func(c *cohort.Comm) error {
		_, err := cohort.Recv(c, make([]int, 1), 1, 0)
		return err
	})
	go func() {
		for ; ; time.Sleep(10 * time.Millisecond) { // poll: rank 1 may not have stopped yet
			_ = syscall.Kill(pid[0], syscall.SIGCONT)
		}
	}()
	return errors.Join(err, w.Barrier())
}
