package engine

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// both makes a communicator of both ranks on rank 0.
func both(t *testing.T, world *comm, id uint32) *comm {
	t.Helper()
	c, err := world.Derive(nil, []int{0, 1}, id)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*comm)
}

// sent writes what rank 1 sends on a communicator: a short message, a long one, and both notices. It returns when rank 0
// has read them.
func sent(t *testing.T, c *comm, write func(h frame.Header, body []byte), id uint32) {
	t.Helper()
	write(frame.Header{Kind: frame.Eager, Context: id, Tag: 1}, make([]byte, 8))
	write(frame.Header{Kind: frame.ReadyToSend, Context: id, Tag: 1, Length: 1 << 20, Token: 1 << 40}, nil)
	write(frame.Header{Kind: frame.Broken, Context: id}, backend.Faultf(backend.ErrTimeout, "for the test").Encode(noticeMax))
	write(frame.Header{Kind: frame.Closed, Context: id}, nil)
	write(frame.Header{Kind: frame.Eager, Tag: 2}, nil)
	if _, err := c.Recv(patient, nil, 1, 2); err != nil {
		t.Fatal(err)
	}
}

// kept checks for how many messages have arrived, were taken by Mprobe, and for how many communicators there are notices.
func kept(t *testing.T, when string, c *comm, arrived, held, early int) {
	t.Helper()
	locked(c, func(e *Engine) bool {
		if e.arrived.Len() != arrived || len(e.held) != held || len(e.early) != early {
			t.Errorf("%s: %d messages, %d taken, notices of %d communicators; want %d, %d, %d", when,
				e.arrived.Len(), len(e.held), len(e.early), arrived, held, early)
		}
		return true
	})
}

// Nothing is kept for a communicator that this rank has closed, nor for its control communicator, whenever it comes. That
// of another one is.
func TestCloseDropsWhatItsControlCommunicatorHas(t *testing.T) {
	const id, other = 1, 2
	world, write := single(t)
	c := both(t, world, id)
	sent(t, world, write, id|agree.ControlID)
	sent(t, world, write, other|agree.ControlID)
	kept(t, "before Close", world, 4, 0, 2)
	c.Close()
	kept(t, "after Close", world, 2, 0, 1)
	sent(t, world, write, id|agree.ControlID)
	sent(t, world, write, id)
	kept(t, "what comes after Close", world, 2, 0, 1)
	if n := len(world.e.comms); n != 1 {
		t.Errorf("%d communicators are known, want the first alone", n)
	}
}

// A message that Mprobe has taken goes with its communicator.
func TestCloseDropsWhatMprobeHasTaken(t *testing.T) {
	world, write := single(t)
	c := both(t, world, 1)
	write(frame.Header{Kind: frame.ReadyToSend, Context: 1, Tag: 1, Length: 1 << 20, Token: 1 << 40}, nil)
	m, _, _, err := c.Mprobe(patient, 1, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	kept(t, "before Close", world, 0, 1, 0)
	c.Close()
	kept(t, "after Close", world, 0, 0, 0)
	var q backend.Request
	q.Begin()
	c.Imrecv(&q, m, nil)
	if err := await(t, world, &q); backend.Code(err) != backend.Code(backend.ErrClosed) {
		t.Errorf("a receive of it afterwards: %v, want ErrClosed", err)
	}
}

// What arrives for a communicator waits until this rank makes it or says that it will not, whatever arrives for others.
func TestNoticesWaitForCommunicatorThatMayBeMade(t *testing.T) {
	const first, last = 1, 3000
	world, write := single(t)
	for id := uint32(first); id <= last; id++ {
		write(frame.Header{Kind: frame.Closed, Context: id}, nil)
		write(frame.Header{Kind: frame.Closed, Context: id | agree.ControlID}, nil)
		if id%1000 == 0 {
			sent(t, world, write, id)
		}
	}
	kept(t, "before any is made", world, 6, 0, 2*last)
	for _, id := range []uint32{last - 1, first} {
		c := both(t, world, id)
		_, err := c.Recv(patient, nil, 1, 2)
		isLost(t, fmt.Sprint("a receive on ", id), err, "rank 1 has closed this communicator")
	}
}

// Messages and notices for a communicator that this rank does not make are dropped once the rank says so. Notices that
// come again for a communicator that all members have closed are dropped, too.
func TestSettledDropsWhatIsNotMade(t *testing.T) {
	world, write := single(t)
	closed, open := both(t, world, 1), both(t, world, 2)
	closed.Close()
	for id := uint32(1); id <= 4; id++ {
		sent(t, world, write, id)
		sent(t, world, write, id|agree.ControlID)
	}
	// Of 1, all members have closed it before its control communicator gets something; of 2 that, and messages; of 3 and 4 all.
	kept(t, "while all may be made", world, 2+4+2*4, 0, 1+1+2*2)
	world.Settled(4)
	kept(t, "when 3 is not made", world, 4+4, 0, 1+2)
	for id := uint32(1); id <= 3; id += 2 {
		sent(t, world, write, id)
		sent(t, world, write, id|agree.ControlID)
	}
	kept(t, "what comes later for 1 and 3", world, 4+4, 0, 1+2)
	open.Close()
	both(t, world, 4).Close()
	kept(t, "when all are closed", world, 0, 0, 0)
}
