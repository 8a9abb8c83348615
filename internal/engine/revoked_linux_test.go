package engine

import (
	"os"
	"testing"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// Messages that are revoked before a receive for them is posted do not pile up. One that is not revoked stays.
func TestRevokedMessagesAreForgotten(t *testing.T) {
	world, o := withOther(t, os.Getpid(), 0)
	buf := make([]byte, 64<<10)
	o.expose(t, 0, buf, true)
	for range 4 * staleMin {
		x := o.expose(t, 0, buf, false)
		world.Poll()
		if !o.Withdraw(x) {
			t.Fatal("the message has been received")
		}
	}
	arrived := &world.(*comm).e.arrived
	kept := arrived.Len()
	if kept > staleMin {
		t.Errorf("%d messages are kept, of which one is not revoked", kept)
	}
	receive(t, world, len(buf)) // it does not end
	if n := arrived.Len(); n != kept-1 {
		t.Errorf("the receive has taken %d messages, want the one that is not revoked", kept-n)
	}
}

// A rank revokes an exposed message, sends another one, and closes the communicator. A receive that is posted then gets the
// second message.
func TestRevokedMessageIsNotLostWithItsSender(t *testing.T) {
	world, o := withOther(t, os.Getpid(), 0)
	c := both(t, world.(*comm), 2)
	x := o.expose(t, 2, make([]byte, 1<<20), false)
	if !o.Revoke(x) {
		t.Fatal("the message has been received")
	}
	o.write(t, frame.Header{Kind: frame.Eager, Context: 2, Tag: 1}, "message2")
	o.write(t, frame.Header{Kind: frame.Closed, Context: 2}, "")
	until(t, "closing", c, func() bool { return c.isGone(1) })
	got := make([]byte, 1<<20)
	if st, err := c.Recv(patient, got, 1, 1); err != nil || string(got[:st.Bytes]) != "message2" {
		t.Errorf("the receive ends with %q and %v", got[:st.Bytes], err)
	}
}
