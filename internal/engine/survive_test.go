package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// A loss ends all communicators, with any members, and those made afterwards. Those that have
// acknowledged it work until the next loss.
func TestLossEndsCommunicatorsThatHaveNotAcknowledgedIt(t *testing.T) {
	world := mesh(t, 5)
	two := derive(t, world, 1, 0, 1)
	waiting, _ := irecv(two[0], 8, 1, 3)
	pending := isend(world[1], 2*EagerMax, 4, 3)
	probed := make(chan error, 1)
	go func() {
		_, _, err := world[2].Probe(patient, backend.AnySource, 9, true)
		probed <- err
	}()

	kill(world[4])
	isLost(t, "a receive between two others", await(t, two[0], waiting), "rank 4")
	isLost(t, "a send to the lost rank", await(t, world[1], pending), "rank 4")
	isLost(t, "a probe", <-probed, "rank 4")
	for _, c := range world[:4] {
		lostIs(t, c, 4)
		isLost(t, "a send afterwards", c.Send(patient, nil, c.rank, 1, backend.Standard), "rank 4")
	}
	late := derive(t, world, 2, 0, 1)
	_, err := late[0].Recv(patient, nil, 1, 1)
	isLost(t, "a communicator made afterwards", err, "rank 4")

	first := without(t, world[:4], 3, 4)
	works(t, first)
	child := derive(t, first, 4, 2, 1, 0)
	works(t, child)
	waiting, _ = irecv(child[0], 8, backend.AnySource, backend.AnyTag)
	kill(world[0])
	isLost(t, "a receive in what was derived", await(t, child[0], waiting), "rank 0")
	for _, c := range world[1:4] {
		lostIs(t, c, 0, 4)
	}
	isLost(t, "a communicator that has acknowledged the first loss only", first[1].Send(patient, nil, 1, 1, backend.Standard), "rank 0")
	second := without(t, first[1:], 5, 0)
	works(t, second)
	_, err = world[1].Recv(patient, nil, 2, 1)
	isLost(t, "the first communicator", err, "rank 4") // what ended it stays what it was
}

// Messages that a rank sent before its end can be received in a control communicator, even if another rank
// reported the end before the link did. Then receives from it fail, and those from others go on. It does
// not matter whether the control communicator was made before or after.
func TestControlCommunicatorOutlivesLosses(t *testing.T) {
	const id = 1 << 31
	world := mesh(t, 4)
	made := control(t, id, world[3], world[1])
	dying, before := made[0], made[1]
	for i := range 3 {
		for _, to := range []int{0, 1} {
			if err := dying.Send(patient, []byte{byte(10*to + i)}, to, i, backend.Standard); err != nil {
				t.Fatal(err)
			}
		}
	}
	isend(dying, 2*EagerMax, 0, 77) // is lost with its sender
	// Rank 0 receives the notice of rank 2, and has read nothing of rank 3's.
	world[0].e.mu.Lock()
	world[2].Declare(3, errors.New("for the test"))
	world[0].e.peers[2].pull()
	if world[0].e.losses[3] == nil {
		t.Error("rank 0 has no notice of the loss")
	}
	world[0].e.handleLosses()
	world[0].e.mu.Unlock()
	kill(world[3])

	world[0].Break(errors.New("so that the first communicator is broken too"))
	made = control(t, id, world[0], world[2])
	after, third := made[0], made[1]
	pending, _ := irecv(third, 1, 0, 5)
	for to, c := range []*comm{after, before} {
		for i := range 3 {
			got := make([]byte, 1)
			if _, err := c.Recv(patient, got, 3, i); err != nil || got[0] != byte(10*to+i) {
				t.Errorf("rank %d: message %d is %d, %v", to, i, got[0], err)
			}
		}
		_, err := c.Recv(patient, make([]byte, 1), 3, 3)
		isLost(t, "a message that was not sent", err, "rank 3", "for the test")
		isLost(t, "a send to the lost rank", c.Send(patient, nil, 3, 0, backend.Standard), "rank 3")
		if err := c.Broken(); err != nil {
			t.Errorf("rank %d: the control communicator is broken: %v", to, err)
		}
	}
	_, err := after.Recv(patient, make([]byte, 2*EagerMax), 3, 77)
	isLost(t, "a long message whose RTS has arrived", err, "rank 3")
	if pending.Ready() {
		t.Errorf("a receive from a rank that lives has ended: %v", pending.Err)
	}
	if err := after.Send(patient, []byte{99}, 2, 5, backend.Standard); err != nil {
		t.Error(err)
	}
	if err := await(t, world[2], pending); err != nil {
		t.Error(err)
	}
	// Abort ends control communicators too.
	if err := world[1].Abort(5); err != nil {
		t.Fatal(err)
	}
	_, err = after.Recv(patient, make([]byte, 1), 2, 5)
	isLost(t, "a receive after Abort", err, "rank 1", "code 5")
	isLost(t, "Broken after Abort", after.Broken(), "code 5")
	if _, err := world[0].Control(id + 1); !errors.Is(err, backend.ErrPeerLost) {
		t.Errorf("a control communicator after Abort: %v", err)
	}
}

// A rank that has closed a communicator does not use its control communicator either, whether it had
// made that or not.
func TestControlCommunicatorOfClosedOne(t *testing.T) {
	const id = 1 << 31
	world := mesh(t, 3)
	made := derive(t, world, 1, 0, 1, 2)
	controls := control(t, id, made[:2]...)
	waiting, _ := irecv(controls[0], 1, 2, 1)
	other, got := irecv(controls[0], 1, 1, 1)
	if err := controls[1].Send(patient, []byte{5}, 2, 1, backend.Standard); err != nil {
		t.Fatal(err)
	}
	made[2].Close()
	isLost(t, "a receive", await(t, controls[0], waiting), "rank 2 has closed this communicator")
	isLost(t, "a send", controls[0].Send(patient, nil, 2, 1, backend.Standard), "rank 2 has closed this communicator")
	if err := controls[1].Send(patient, []byte{6}, 0, 1, backend.Standard); err != nil {
		t.Error(err)
	}
	if err := await(t, controls[0], other); err != nil || got[0] != 6 {
		t.Errorf("a message of another rank: %d, %v", got[0], err)
	}
}

// A rank that is declared lost receives the notice and ends. It does not declare the others lost, whose
// links with it all end.
func TestDeclaredRankIsLostForAll(t *testing.T) {
	world := mesh(t, 4)
	last := world[3]
	waiting, _ := irecv(last, 8, backend.AnySource, 1)
	last.e.mu.Lock() // it is stopped
	world[1].Declare(3, errors.New("it has not moved"))
	world[1].Declare(3, errors.New("again"))
	for _, c := range world[:3] {
		lostIs(t, c, 3)
		_, err := c.Recv(patient, nil, (c.rank+1)%3, 1)
		isLost(t, "a receive", err, "rank 3 was declared lost by rank 1: it has not moved")
	}
	last.e.mu.Unlock()
	isLost(t, "the lost rank's receive", await(t, last, waiting), "rank 3 was declared lost by rank", "it has not moved")
	if _, err := last.Control(9); !errors.Is(err, backend.ErrPeerLost) {
		t.Errorf("a control communicator of a lost rank: %v", err)
	}
	last.Declare(0, errors.New("out of spite"))
	works(t, without(t, world[:3], 1, 3))
	for _, c := range world[:3] {
		lostIs(t, c, 3)
	}
	if err := last.Close(); err != nil {
		t.Error(err)
	}
}

// Communicators without a rank that has left in good order go on if it is declared lost.
func TestRankThatLeftIsNotDeclaredLost(t *testing.T) {
	world := mesh(t, 3)
	rest := derive(t, world, 1, 0, 1)
	world[2].Close()
	until(t, "aware that rank 2 has left", world[0], func() bool { return slices.Equal(world[0].Left(), []int{2}) })
	if lost := world[0].Failed(); lost != nil {
		t.Errorf("rank 0 takes %v for lost", lost)
	}
	world[0].Declare(2, errors.New("it is gone"))
	world[1].Declare(2, errors.New("it is gone")) // which may not have read the goodbye
	works(t, rest)
	_, err := world[0].Recv(patient, nil, 2, 1)
	isLost(t, "a receive from it", err, "rank 2 has closed its communicator")
}

func TestRankDeclaresItselfLost(t *testing.T) {
	world := mesh(t, 3)
	world[1].Declare(1, errors.New("bad memory"))
	isLost(t, "its own send", world[1].Send(patient, nil, 0, 1, backend.Standard), "rank 1", "bad memory")
	for _, c := range []*comm{world[0], world[2]} {
		lostIs(t, c, 1)
		_, err := c.Recv(patient, nil, 2-c.rank, 1)
		isLost(t, "a receive", err, "rank 1 was declared lost by rank 1: bad memory")
	}
}

// Ranks are lost one after the other, with communicators open and operations in progress. Nothing of them
// is left.
func TestLossesLeaveNothingBehind(t *testing.T) {
	const n = 12
	world := mesh(t, n)
	now := world
	id := uint32(1)
	var lost []int
	for victim := n - 1; victim >= 2; victim-- {
		var made []*comm
		for range 20 {
			all := make([]int, len(now))
			for i := range all {
				all[i] = i
			}
			made = append(made, derive(t, now, id, all...)...)
			id++
		}
		for _, c := range made[:len(made)/2] {
			c.Close()
		}
		// Receives, RTS, and messages that no receive matches.
		for _, c := range now[1:] {
			irecv(c, 10, 0, 1)
			isend(c, 2*EagerMax, 0, 1)
			c.Send(patient, make([]byte, 100), 0, 2, backend.Standard)
		}
		kill(now[len(now)-1])
		lost = append([]int{victim}, lost...)
		for _, c := range now[:len(now)-1] {
			lostIs(t, c, lost...)
		}
		controls := control(t, 1<<31+id, now[:len(now)-1]...)
		id++
		next := without(t, now, id, victim)
		id++
		for _, c := range append(append(made, controls...), now...) {
			if !c.isWorld && c.e.me < victim {
				c.Close()
			}
		}
		now = next
	}
	works(t, now)
	for _, c := range now {
		c.Close()
	}
	for _, c := range world[:2] {
		e := c.e
		until(t, "without communicators that others have not closed", c, func() bool { return locked(c, func(e *Engine) bool { return len(e.comms) == 1 }) })
		e.mu.Lock()
		if len(e.comms) != 1 || len(e.early) != 0 || e.posted.Len() != 0 || len(e.slots) != len(e.spares) ||
			len(e.due) != 0 || len(e.membership.LostList) != e.linksClosed || e.probes != 0 || len(e.corks) != 0 {
			t.Errorf("rank %d has %d communicators, %d early, %d receives, %d of %d slots free", e.me,
				len(e.comms), len(e.early), e.posted.Len(), len(e.spares), len(e.slots))
		}
		e.mu.Unlock()
	}
}

// A rank is stopped while another one sends to it, until the link is full, and declares it lost. When it goes
// on it finds the notice behind the frame of which it has a part.
func TestRankStoppedWithinFrameLearnsItIsLost(t *testing.T) {
	ranks := mesh(t, 2)
	stopped, other := ranks[1], ranks[0]
	stopped.e.mu.Lock()
	var sends []*backend.Request
	for full := false; !full; {
		sends = append(sends, isend(other, EagerMax, 1, 1))
		full = locked(other, func(e *Engine) bool { return e.peers[1].woff > 0 && len(sends) > 2 })
	}
	other.Declare(1, errors.New("for the test"))
	for _, q := range sends {
		if !q.Ready() {
			t.Error("a send to the lost rank goes on")
		}
	}
	isLost(t, "the last send", sends[len(sends)-1].Err, "rank 1 was declared lost by rank 0")
	stopped.e.mu.Unlock()
	_, err := stopped.Recv(patient, nil, 0, 2)
	isLost(t, "a receive of the lost rank", err, "rank 1 was declared lost by rank 0")
	until(t, "without the link", other, func() bool {
		return locked(other, func(e *Engine) bool { return len(e.goodbyes) == 0 })
	})
}

// After Agree all ranks know who has left, also one that gets the goodbye later than the others.
func TestAgreeMakesLeavingKnownToAllRanks(t *testing.T) {
	world := mesh(t, 3)
	leave := func(to int) {
		locked(world[2], func(e *Engine) bool {
			return e.peers[to].emit(frame.Header{Kind: frame.Goodbye}, nil, nil)
		})
	}
	leave(0)
	until(t, "told that rank 2 has left", world[0], func() bool { return len(world[0].Left()) == 1 })
	agree := func(c *comm) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := c.Agree(patient, 1)
			if got := c.Lost(); err == nil && !slices.Equal(got, []int{2}) {
				err = fmt.Errorf("after Agree rank %d has lost %v, want 2", c.rank, got)
			}
			done <- err
		}()
		return done
	}
	first, second := agree(world[0]), agree(world[1])
	if err := <-first; err != nil {
		t.Error(err)
	}
	select { // it waits for the goodbye
	case err := <-second:
		second <- err
	case <-time.After(50 * time.Millisecond):
	}
	leave(1)
	if err := <-second; err != nil {
		t.Error(err)
	}
}
