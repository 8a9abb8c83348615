package engine

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// steps is a job with links on demand in which the test does everything: it moves the ranks, brings the links, and
// lets time pass.
type steps struct {
	ranks []*comm
	hub   []*lateLink // each rank's end of its link with rank 0; nil for rank 0
	now   time.Time
}

func inSteps(t *testing.T, n int) *steps {
	t.Helper()
	s := &steps{now: simBegin}
	for r := range n {
		e := New(Config{Rank: r, Peers: make([]Peer, n), Heartbeat: simBeat, Sleeper: newTestSleeper(), Dialer: simDialer{}, Manual: true,
			Now: func() time.Time { return s.now }})
		e.demand.try = func(*peer, time.Duration) {}
		s.hub = append(s.hub, nil)
		if r > 0 {
			a, b := testPair(newTestSleeper(), newTestSleeper())
			s.hub[r] = &lateLink{Link: a, s: s}
			e.Connect(0, s.hub[r])
			s.ranks[0].e.Connect(r, b)
		}
		c, err := e.Start()
		if err != nil {
			t.Fatal(err)
		}
		s.ranks = append(s.ranks, c.(*comm))
	}
	return s
}

// leave begins the leaving of a rank.
func (s *steps) leave(r int) *leaving {
	c := s.ranks[r]
	c.closed.Store(true)
	c.retire()
	return c.e.newLeaving(leaveQueued, leaveLinks, leaveMost)
}

// lateLink is an end of a link at which nothing arrives before a moment.
type lateLink struct {
	Link
	s     *steps
	until time.Time
}

func (l *lateLink) Read(a *frame.Arrival) (bool, error) {
	if l.s.now.Before(l.until) {
		return false, nil
	}
	return l.Link.Read(a)
}

// A rank leaves while a link to it comes. Each end has the link at any moment of that, and what the other rank writes
// arrives at any moment, or too late. The others do not lose the rank that leaves, and its leaving ends.
func TestRankThatLeavesWhileLinkComesIsNotLost(t *testing.T) {
	const looks = 6
	for here := range looks {
		for there := range looks {
			for late := range 2 * looks {
				t.Run(fmt.Sprintf("link at %d and %d, first frame at %d", here, there, late), func(t *testing.T) {
					s := inSteps(t, 3)
					if late%2 == 0 { // what the hub reports comes last
						s.hub[2].until = simBegin.Add(time.Hour)
					}
					a, b := testPair(newTestSleeper(), newTestSleeper())
					q := isend(s.ranks[2], 1, 1, 5)
					l, left := s.leave(1), false
					for i := 0; i < 4*looks || !left; i++ {
						if i == here {
							s.ranks[2].e.Came(1, a)
						}
						if i == there {
							s.ranks[1].e.Came(2, &lateLink{b, s, simBegin.Add(time.Duration(late) * time.Millisecond)})
						}
						left = left || l.look()
						if i%2 == 0 {
							s.ranks[0].Poll()
						}
						if i > looks {
							s.ranks[2].Poll()
						}
						if s.now = s.now.Add(time.Millisecond); i > 20000 {
							t.Fatal("rank 1 has not left")
						}
					}
					s.now = s.now.Add(time.Hour)
					for _, r := range []int{0, 2} {
						s.ranks[r].Poll()
						if lost := s.ranks[r].Failed(); lost != nil {
							t.Errorf("rank %d has lost ranks %v: %v", r, lost, s.ranks[r].e.losses[1])
						}
					}
					if !q.Ready() {
						t.Error("a send to the rank that has left goes on")
					}
				})
			}
		}
	}
}

// Ranks that have heard a goodbye send no heartbeats to the rank that leaves. It does not lose them while it waits for
// the others.
func TestRankThatLeavesLosesNobodyForSilence(t *testing.T) {
	s := inSteps(t, 3)
	e, l := s.ranks[0].e, s.leave(0)
	for s.now.Before(simBegin.Add(2*simBeat)) && !l.look() {
		s.ranks[1].Poll()
		if !e.membership.Parted() { // then rank 1 takes the goodbye, and rank 2 is stopped for a while
			s.ranks[2].Poll()
			s.ranks[1].e.beat()
			s.ranks[2].e.beat()
		}
		e.beat()
		s.now = s.now.Add(e.heartbeat.every)
	}
	if e.membership.LostList != nil || l.step != leaveGoodbye {
		t.Errorf("the rank that leaves has lost ranks %v, in step %d", e.membership.LostList, l.step)
	}
}

// The hub sleeps while it waits for the others to leave, as every goroutine that waits does.
func TestRankThatLeavesSleeps(t *testing.T) {
	ranks := onDemand(t, 2, 0)
	left := make(chan error)
	go func() { left <- ranks[0].Close() }()
	for !ranks[0].e.crew.Rests() {
		select {
		case <-left:
			t.Fatal("the hub has left, and has not slept")
		default:
			runtime.Gosched()
		}
	}
	if err := errors.Join(ranks[1].Close(), <-left); err != nil {
		t.Error(err)
	}
}

// A rank leaves while another one is stopped that has not taken everything: Close says so. It says nothing of one that has
// taken all and does not answer.
func TestRankThatLeavesReportsMessagesNotTaken(t *testing.T) {
	for _, unsent := range []int{0, 5} {
		s := inSteps(t, 2)
		link := s.hub[1].Link.(*testLink)
		link.unsent = unsent
		begun, e, l := s.now, s.ranks[1].e, s.leave(1)
		for !l.look() {
			s.now = s.now.Add(50 * time.Millisecond)
		}
		if err := e.untaken(); errors.Is(err, backend.ErrTimeout) != (unsent > 0) || s.now.Sub(begun) > leaveMost {
			t.Errorf("%d bytes are not taken after %v: %v", unsent, s.now.Sub(begun), err)
		}
		if link.limit < leaveFor { // a link that the system has given up has nothing unsent
			t.Errorf("the system gives the link up after %v, before the leaving ends", link.limit)
		}
	}
}

// A rank leaves while its link to another one is full. If that goes on before the leaving ends it gets all, and does not
// lose the rank; otherwise Close says so.
func TestRankThatLeavesWritesItsQueue(t *testing.T) {
	for _, goesOn := range []bool{true, false} {
		s := inSteps(t, 2)
		const n = testRoom / EagerMax
		for range n {
			isend(s.ranks[1], EagerMax, 0, 5) // the last one fits in part
		}
		begun, e, l := s.now, s.ranks[1].e, s.leave(1)
		for !l.look() {
			if s.now = s.now.Add(50 * time.Millisecond); goesOn && s.now.Sub(begun) > leaveFor+leaveFor/2 {
				s.ranks[0].Poll()
			}
		}
		if err := e.untaken(); errors.Is(err, backend.ErrTimeout) == goesOn {
			t.Errorf("the other rank goes on: %v; Close returns %v", goesOn, err)
		}
		e.endGoodbyes()
		for range n {
			q, _ := irecv(s.ranks[0], EagerMax, 1, 5)
			for range 100 {
				s.ranks[0].Poll()
			}
			if goesOn && (!q.Ready() || q.Err != nil) {
				t.Errorf("a message has not arrived: %v", q.Err)
			}
		}
		if lost := s.ranks[0].Failed(); goesOn && lost != nil {
			t.Errorf("ranks %v are lost: %v", lost, s.ranks[0].e.losses[1])
		}
	}
}

// A link through memory ends before it is confirmed, with messages queued that the kernel would copy. They go over
// the next link.
func TestMessagesQueuedForLinkThatEndsGoOverNext(t *testing.T) {
	s, memory := inSteps(t, 3), newSimMemory(t)
	if memory.segment == nil {
		t.Skip("no links through memory on this platform")
	}
	x := &sim{onDemand: true}
	for range 3 {
		x.sleepers = append(x.sleepers, newSimSleeper(x))
	}
	link := func() (a, b simEnd) { return memory.link(x, 2, 1, true) }
	a, b := link()
	s.ranks[2].e.Came(1, a)
	var sends []*backend.Request
	for range 3 {
		sends = append(sends, isend(s.ranks[2], 64<<10, 1, 5))
	}
	b.(*simMemoryLink).Close() // rank 1 cannot take it
	s.ranks[2].Poll()
	a, b = link()
	s.ranks[2].e.Came(1, a)
	s.ranks[1].e.Came(2, b)
	sends = append(sends, isend(s.ranks[2], 64<<10, 1, 5))
	for i, q := range sends {
		r, _ := irecv(s.ranks[1], 64<<10, 2, 5)
		for range 1000 {
			s.ranks[1].Poll()
			s.ranks[2].Poll()
		}
		if !r.Ready() || !q.Ready() || r.Err != nil || q.Err != nil {
			t.Errorf("message %d: received %v, sent %v, %v, %v", i, r.Ready(), q.Ready(), r.Err, q.Err)
		}
	}
}

// A rank that sends a message before it confirms the link is lost: a receive that has a part of the message does not
// wait for the next link.
func TestMessageOnUnconfirmedLinkLosesItsSender(t *testing.T) {
	s := inSteps(t, 3)
	c := s.ranks[2]
	q, _ := irecv(c, 8, 1, 1)
	a, b := testPair(newTestSleeper(), newTestSleeper())
	c.e.Came(1, a)
	var head [frame.HeaderSize]byte
	b.enc.Encode(&head, &frame.Header{Kind: frame.Eager, Tag: 1, Length: 8})
	b.put(append(head[:], 1, 2, 3))
	c.Poll()
	b.Close()
	c.Poll()
	if !q.Ready() {
		t.Fatal("the receive has not ended")
	}
	isLost(t, "the receive", q.Err, "not confirmed")
}

// A message is sent while the link for it has failed and is not confirmed. It goes over the next link.
func TestMessageForLinkThatFailsGoesOverNext(t *testing.T) {
	s := inSteps(t, 3)
	c := s.ranks[2]
	a, b := testPair(newTestSleeper(), newTestSleeper())
	b.Close()
	c.e.Came(1, a) // it cannot confirm the link
	q := isend(c, 0, 1, 1)
	c.Poll()
	a, b = testPair(newTestSleeper(), newTestSleeper())
	c.e.Came(1, a)
	var head [frame.HeaderSize]byte
	b.enc.Encode(&head, &frame.Header{Kind: frame.Heartbeat})
	b.put(head[:])
	for range 3 {
		c.Poll()
	}
	if !q.Ready() || q.Err != nil {
		t.Errorf("the send has ended: %v; %v", q.Ready(), q.Err)
	}
}
