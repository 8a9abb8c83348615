//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestLibraryDoesNotWriteAfterReceiveHasEnded ends a receive while its long message arrives: at its deadline, because the
// communicator breaks, and because it is closed. From then on the buffer is the program's, and the library must not write to it.
func TestLibraryDoesNotWriteAfterReceiveHasEnded(t *testing.T) {
	const length = 128 << 20
	rank("long", func(w *cohort.Comm) error {
		b := make([]byte, length)
		for i := 0; i < len(b); i += 64 {
			b[i] = 1
		}
		for _, how := range []string{"deadline", "broken", "closed"} {
			d := must.Get(w.Dup())
			must.OK(w.Barrier())
			if w.Rank() == 0 { // it does not end if the receive has ended first
				must.Get(cohort.Isend(d, b, 1, 1))
			} else if err := received(w, d, b, how); err != nil {
				return fmt.Errorf("%s: %w", how, err)
			}
			must.OK(errors.Join(w.Barrier(), forgetful(d.Close())))
		}
		return forgetful(w.Close())
	})
	inLibraries(t, func(t *testing.T, name string) { start(t, name, 2, "long").must(t) })
}

// received receives a message that is so long that the receive ends before it has arrived, and looks whether its buffer
// changes afterwards.
func received(w, d *cohort.Comm, b []byte, how string) error {
	const wait = 5 * time.Millisecond
	var err error
	if how == "deadline" {
		ctx, cancel := context.WithTimeout(background, wait)
		defer cancel()
		_, err = cohort.Recv(d.WithContext(ctx), b, 0, 1)
	} else {
		var q *cohort.Request
		if q, err = cohort.Irecv(d, b, 0, 1); err != nil {
			return err
		}
		for end := time.Now().Add(wait); time.Now().Before(end); {
			if _, done, _ := q.Test(); done {
				break
			}
		}
		if how == "closed" {
			d.Close()
		} else {
			ctx, cancel := context.WithTimeout(background, time.Microsecond)
			defer cancel()
			if err := cohort.Ssend(d.WithContext(ctx), b[:0], 1, 2); !errors.Is(err, cohort.ErrTimeout) {
				return fmt.Errorf("a send that nobody receives: %v", err)
			}
		}
		_, err = q.Wait()
	}
	if err == nil {
		return nil // the message has arrived
	}
	for i := len(b) - 64; i >= 0; i -= 64 {
		b[i] = 7
	}
	for range 50 { // the library makes progress
		time.Sleep(time.Millisecond) // on purpose: time for a write that must not come, while the library makes progress
		if _, _, err := w.Iprobe(0, 9); err != nil {
			return err
		}
	}
	for i := len(b) - 64; i >= 0; i -= 64 {
		if b[i] != 7 {
			return fmt.Errorf("byte %d was written after the receive had returned %v", i, err)
		}
	}
	return nil
}

// TestOperationThatCompletesDoesNotBreakItsCommunicator has deadlines pass at the moment when operations complete, while
// another goroutine polls, and so completes them. One that returns nil has not broken its communicator.
func TestOperationThatCompletesDoesNotBreakItsCommunicator(t *testing.T) {
	rank("close calls", closeCalls)
	time := "3s"
	if testing.Short() {
		time = "1s"
	}
	inLibraries(t, func(t *testing.T, name string) { start(t, name, 2, "close calls", timeVariable+"="+time).must(t) })
}

// timeVariable holds how long closeCalls goes on.
const timeVariable = "COHORT_TEST_TIME"

func closeCalls(w *cohort.Comm) error {
	me := w.Rank()
	limit := must.Get(time.ParseDuration(os.Getenv(timeVariable)))
	busy := must.Get(w.Dup())
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { // it polls
		for {
			q, err := cohort.Irecv(busy, make([]int, 1), 1-me, 1)
			for range 2000 {
				if err == nil {
					_, _, err = q.Test()
				}
			}
			if err == nil {
				err = q.Cancel()
				q.Wait()
			}
			select {
			case <-stop:
				done <- err
				return
			default:
			}
		}
	}()
	a, b := make([]int, 1<<16), make([]int, 1<<16)
	for end, step := time.Now().Add(limit), 0; ; step++ {
		more, err := cohort.BcastOne(w, time.Now().Before(end), 0)
		if err != nil || !more {
			close(stop)
			return errors.Join(err, <-done)
		}
		d, err := w.Dup()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(background, time.Duration(150+step*37%300)*time.Microsecond)
		switch {
		case me == 1:
			time.Sleep(time.Duration(step*53%400) * time.Microsecond) // on purpose: the rank comes early or late
			if step%2 == 0 {
				_, _ = cohort.Recv(d, b, 0, 1)
			} else if q, err := cohort.Iallreduce(d, a[:64], b[:64], cohort.Sum); err == nil {
				_, _ = q.Wait()
			}
		case step%2 == 0:
			err = cohort.Send(d.WithContext(ctx), a, 1, 1)
		default:
			var q *cohort.Request
			if q, err = cohort.Iallreduce(d.WithContext(ctx), a[:64], b[:64], cohort.Sum); err == nil {
				_, err = q.Wait()
			}
		}
		cancel()
		if me == 0 && err == nil {
			// A message to oneself does not need the other rank.
			if err := cohort.Send(d, a[:1], 0, 9); err != nil {
				return fmt.Errorf("step %d has returned nil, and then: %w", step, err)
			}
		}
		must.OK(d.Close())
	}
}

// TestForgottenOperationsAreCollected forgets operations without ending them, and calls the garbage collector. The
// library may still use their buffers, which are pinned: the process would end if the collector found them.
func TestForgottenOperationsAreCollected(t *testing.T) {
	joins("forgotten", func(w *cohort.Comm) error {
		for _, closes := range []bool{true, false} {
			must.OK(forget(w, closes))
			for range 4 {
				runtime.GC()
				time.Sleep(5 * time.Millisecond) // on purpose: time for the collector
			}
		}
		if err := w.Close(); !errors.Is(err, cohort.ErrRequest) {
			return fmt.Errorf("Close of the world: %v", err)
		}
		w = nil
		for range 4 {
			runtime.GC()
			time.Sleep(5 * time.Millisecond) // on purpose: time for the collector
		}
		say("alive")
		return nil
	})
	inLibraries(t, func(t *testing.T, name string) {
		start(t, name, 2, "forgotten").must(t).has(t, "alive\nalive")
	})
}

// forget starts operations and drops them: idle and active persistent collectives, a nonblocking one that is complete
// but was not waited for, a receive that nobody sends to.
func forget(w *cohort.Comm, closes bool) error {
	c, err := w.Dup()
	if err != nil {
		return err
	}
	for started := range 3 { // never, once and ended, still under way on some ranks
		p, err := cohort.AllreduceInit(c, make([]int64, 100), make([]int64, 100), cohort.Sum)
		if err != nil {
			return err
		}
		if started > 0 {
			if err := p.Start(); err != nil {
				return err
			}
		}
		if started == 1 {
			if _, err := p.Wait(); err != nil {
				return err
			}
		}
	}
	if _, err := cohort.Iallreduce(c, make([]int64, 100), make([]int64, 100), cohort.Sum); err != nil {
		return err
	}
	if _, err := cohort.Irecv(c, make([]int64, 100), cohort.AnySource, 7); err != nil {
		return err
	}
	if err := w.Barrier(); err != nil {
		return err
	}
	if closes {
		if err := c.Close(); !errors.Is(err, cohort.ErrRequest) {
			return fmt.Errorf("Close: %v", err)
		}
	}
	return nil
}
