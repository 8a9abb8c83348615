//go:build cgo && linux

package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// TestLeavingASendBehind has a rank give up a send that nobody receives, and
// leave: MPICH's MPI_Finalize waits for the message to be received. The job ends all
// the same, and the rank hears why it is not a good end, if it is none.
func TestLeavingASendBehind(t *testing.T) {
	program("send left behind", sendLeftBehind)
	for _, library := range libraries {
		e := start(t, library, 2, "send left behind")
		e.has(t, "rank 1 has left")
		if e.status != 0 {
			e.has(t, "a message whose sending was given up has not been received")
		}
	}
}

func sendLeftBehind() error {
	w, err := cohort.Init(background, nil)
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
		defer cancel()
		err := cohort.Send(w.WithContext(ctx), make([]byte, 16_000), 0, 1)
		if !errors.Is(err, cohort.ErrTimeout) {
			return fmt.Errorf("the send: %v", err)
		}
	}
	err = w.Close()
	say("rank %d has left: %v", w.Rank(), err)
	return err
}

// TestLeavingOneThatNeverComes has a rank give up a barrier, which another never
// comes to, and leave: MPI_Finalize would wait for the other.
func TestLeavingOneThatNeverComes(t *testing.T) {
	program("never comes", neverComes)
	for _, library := range libraries {
		t.Run(library, func(t *testing.T) {
			t.Parallel() // all it does is wait: Close for seconds
			e := start(t, library, 2, "never comes", "COHORT_TIMEOUT=100ms")
			e.failed(t, "rank 0 has left", "MPI_Finalize has not returned", "not heard from rank 1")
		})
	}
}

func neverComes() error {
	w, err := cohort.Init(background, nil)
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		time.Sleep(2 * patience) // it is ended by the launcher
		return nil
	}
	if err := w.Barrier(); !errors.Is(err, cohort.ErrTimeout) {
		return fmt.Errorf("the barrier: %v", err)
	}
	err = w.Close()
	say("rank %d has left: %v", w.Rank(), err)
	return err
}
