//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// untilTaking makes progress until the receive has taken its long message, of
// which most is still to be copied then.
func untilTaking(c *comm, r *backend.Request) error {
	for {
		c.Poll()
		c.e.mu.Lock()
		o, _ := r.Impl.(*op)
		taking := o != nil && o.state == opTaking
		c.e.mu.Unlock()
		switch {
		case taking:
			return nil
		case r.Ready():
			return fmt.Errorf("received at once: %v", r.Err)
		}
	}
}

func init() {
	// So long that the sender, who copies too, is not through while the receiver
	// is between two steps of one Poll.
	const size = 64 << 20

	// A sender gives up a message that is being received: the receiver does not
	// get what the buffer held afterwards, but an error.
	programs["withdrawn"] = func(c backend.Comm) error {
		d, err := c.Derive([]int{0, 1}, 5)
		if err != nil {
			return err
		}
		buf := make([]byte, size)
		if c.Rank() == 0 {
			ctx, cancel := context.WithCancel(context.Background())
			acked := make(chan error, 1)
			go func() { // when the receiver has begun
				_, err := c.Recv(nil, nil, 1, 3)
				cancel()
				c.Wake()
				acked <- err
			}()
			if err := d.Send(&backend.Bound{Ctx: ctx}, buf, 1, 1, backend.Standard); !errors.Is(err, backend.ErrCanceled) {
				return fmt.Errorf("%v, want ErrCanceled", err)
			}
			if err := <-acked; err != nil {
				return err
			}
			copy(buf, bytes.Repeat([]byte{0xff}, size)) // it is the caller's again
			return c.Send(nil, nil, 1, 2, backend.Standard)
		}
		r := &backend.Request{}
		r.Begin()
		d.Irecv(r, buf, 0, 1)
		if err := untilTaking(d.(*comm), r); err != nil {
			return err
		}
		if err := c.Send(nil, nil, 0, 3, backend.Standard); err != nil {
			return err
		}
		for d.(*comm).mine.news.Load() == 0 { // the sender gives up meanwhile
			time.Sleep(time.Millisecond)
		}
		if err := d.Await(nil, r); err != nil {
			return err
		}
		if !errors.Is(r.Err, backend.ErrBroken) || !errors.Is(r.Err, backend.ErrCanceled) {
			return fmt.Errorf("the receiver of a message that was given up: %+v %v", r.Status, r.Err)
		}
		_, err = c.Recv(nil, nil, 0, 2)
		return err
	}

	// A receiver leaves the job with a message half received: the receive ends, and
	// so does the send, well or not.
	programs["leaves"] = func(c backend.Comm) error {
		buf := make([]byte, size)
		if c.Rank() == 0 {
			if err := c.Send(nil, buf, 1, 1, backend.Standard); err != nil {
				return lost(err, 1)
			}
			return nil
		}
		r := &backend.Request{}
		r.Begin()
		c.Irecv(r, buf, 0, 1)
		if err := untilTaking(c.(*comm), r); err != nil {
			return err
		}
		c.Close()
		if !r.Ready() || !errors.Is(r.Err, backend.ErrClosed) {
			return fmt.Errorf("after Close: %v %v", r.Ready(), r.Err)
		}
		return nil
	}
}

func TestWithdrawnMessageIsNotReceived(t *testing.T) {
	launch(t, "withdrawn", 2)
	t.Setenv("SHM_TEST_NOCOPY", "1")
	launch(t, "withdrawn", 2)
}

func TestReceiverLeavesInMiddleOfMessage(t *testing.T) {
	launch(t, "leaves", 2)
	t.Setenv("SHM_TEST_NOCOPY", "1")
	launch(t, "leaves", 2)
}
