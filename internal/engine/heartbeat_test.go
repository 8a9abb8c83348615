package engine

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// Heartbeats are on by default. If they are turned off, they are still sent, because others may have a limit.
func TestHeartbeatsAreSent(t *testing.T) {
	for _, c := range []struct {
		set, limit, every  time.Duration
		ticks, reach, idle int
	}{
		{0, 10 * time.Second, 50 * time.Millisecond, 200, 200, 50},
		{-1, -1, 50 * time.Millisecond, 200, 0, 50},
		{1, 100 * time.Millisecond, 10 * time.Millisecond, 10, 100, 2},
		{backend.HeartbeatMin, 100 * time.Millisecond, 10 * time.Millisecond, 10, 100, 2},
		{500 * time.Millisecond, 500 * time.Millisecond, 50 * time.Millisecond, 10, 20, 2},
		{time.Minute, time.Minute, 50 * time.Millisecond, 1200, 1200, 300},
	} {
		want := heartbeat{limit: c.limit, every: c.every, ticks: c.ticks, reach: c.reach, idle: c.idle}
		if got := newHeartbeat(c.set, 2); got != want {
			t.Errorf("a limit of %v: %+v, want %+v", c.set, got, want)
		}
	}
	// However many ranks share the processors of a node, together they tick no more often than crowd of them would.
	for _, ranks := range []int{0, crowd, crowd + 1, 8 * crowd, 1 << 20} {
		l := newHeartbeat(0, ranks)
		if most := HeartbeatDefault / 10; l.every < min(tickEvery*time.Duration(ranks)/crowd, most) || l.every > max(tickEvery, most) {
			t.Errorf("%d ranks tick every %v", ranks, l.every)
		}
		if limit := time.Duration(l.ticks) * l.every; limit < HeartbeatDefault-l.every || limit > HeartbeatDefault || l.reach < l.ticks || l.idle > l.ticks/2 {
			t.Errorf("%d ranks: %+v, want a limit of %v", ranks, l, HeartbeatDefault)
		}
	}
	for _, limit := range []time.Duration{0, -1, time.Hour} {
		c, _, other := raw(t, limit)
		for range c.e.heartbeat.idle {
			c.e.beat()
		}
		wantHeartbeat(t, limit, other)
	}
	// A rank that gets few of its ticks sends as many, even if it has sent something before the last one.
	c, _, other := raw(t, time.Hour)
	for _, mute := range []int{1, 0} {
		c.e.mu.Lock()
		c.e.peers[1].mute = mute
		c.e.ticked = time.Now().Add(-time.Duration(c.e.heartbeat.idle+1) * c.e.heartbeat.every)
		c.e.mu.Unlock()
		c.e.beat()
		wantHeartbeat(t, time.Hour, other)
	}
}

func wantHeartbeat(t *testing.T, limit time.Duration, other *testLink) {
	t.Helper()
	if h, ok := other.header(); !ok || h.Kind != frame.Heartbeat {
		t.Errorf("a limit of %v: got %v, %v, want a heartbeat", limit, h.Kind, ok)
	}
}

// A silent rank is lost, and one that sends heartbeats is not.
func TestSilentRankIsLost(t *testing.T) {
	c, _, _ := raw(t, backend.HeartbeatMin)
	_, err := c.Recv(patient, make([]byte, 1), 1, 1) // a waiter sleeps meanwhile
	isLost(t, "a receive", err, "rank 1 (process 7 on there) was silent for 100ms")

	c, write, _ := raw(t, -1)
	for range 5 * c.e.heartbeat.ticks { // no limit
		c.e.beat()
	}
	write(frame.Header{Kind: frame.Eager, Tag: 1}, nil)
	if _, err := c.Recv(patient, nil, 1, 1); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	// Bytes that have arrived and were not read count, and one look in so many ticks is enough. The engine's ticker
	// adds to the ticks counted here.
	c, write, _ = raw(t, time.Hour)
	for range 10 {
		write(frame.Header{Kind: frame.Heartbeat}, nil)
		for range c.e.heartbeat.ticks / 2 {
			c.e.beat()
		}
	}
	if lost := c.Failed(); lost != nil {
		t.Errorf("ranks %v are lost, and have sent heartbeats", lost)
	}
	// If nothing comes, the rank is lost two ticks after the limit at the latest, and not much before.
	c, _, _ = raw(t, time.Hour)
	ticks := 0
	for ; c.Failed() == nil && ticks <= 2*c.e.heartbeat.ticks; ticks++ {
		c.e.beat()
	}
	if most := c.e.heartbeat.ticks + 2; ticks > most || ticks < most/2 {
		t.Errorf("a silent rank is lost after %d ticks, and the limit is %d", ticks, c.e.heartbeat.ticks)
	}
}

// The system gives up a link whose data are not taken only where the kernel does not say whether the peer's process runs.
func TestLinkWithinNodeHasNoLimit(t *testing.T) {
	for node, want := range []time.Duration{0, 3 * time.Second} {
		e := New(Config{Peers: []Peer{{}, {Node: node}}, Heartbeat: 2 * time.Second, Sleeper: newTestSleeper(), Runs: func(int) bool { return true }})
		l, _ := testPair(newTestSleeper(), newTestSleeper())
		if e.Connect(1, l); l.limit != want {
			t.Errorf("on node %d: a limit of %v, want %v", node, l.limit, want)
		}
	}
}

// The system reports why a link broke once, to a write. The end of the stream, which a read finds then, says less.
func TestLossNamesFirstErrorOfLink(t *testing.T) {
	for _, x := range []struct {
		fails error
		want  string
	}{
		{syscall.ETIMEDOUT, "lost the connection to rank 1 (process 7 on there): " + syscall.ETIMEDOUT.Error()},
		{syscall.EPIPE, "rank 1 (process 7 on there) ended without closing its communicator"},
	} {
		c, _, other := raw(t, time.Hour)
		c.e.mu.Lock()
		other.other.fails = x.fails
		c.e.mu.Unlock()
		other.cut(io.EOF)
		_ = c.Send(patient, []byte{1}, 1, 1, backend.Standard)
		_, err := c.Recv(patient, nil, 1, 1)
		isLost(t, "a receive", err, x.want)
	}
}

// A Notify function runs for longer than the heartbeat limit, and nobody waits in the rank: it goes on to send
// heartbeats.
func TestHeartbeatsDoNotWaitForNotify(t *testing.T) {
	for _, by := range []string{"the ticker that makes progress", "the ticker that sends heartbeats"} {
		t.Run(by, func(t *testing.T) {
			c, write, other := raw(t, time.Hour)
			called, end := make(chan struct{}), make(chan struct{})
			q := &backend.Request{Notify: func(*backend.Request) {
				close(called)
				<-end
			}}
			defer close(end)
			q.Begin()
			c.Irecv(q, nil, 1, 1)
			if by == "the ticker that sends heartbeats" {
				c.e.mu.Lock()
				c.e.peers[1].quiet = 2 * c.e.heartbeat.ticks // it reads before it takes the rank for lost
				write(frame.Header{Kind: frame.Eager, Tag: 1}, nil)
				c.e.mu.Unlock()
				returned := make(chan struct{})
				go func() {
					c.e.beat()
					close(returned)
				}()
				select {
				case <-returned:
				case <-time.After(time.Minute):
					t.Fatal("the ticker waits for the Notify function")
				}
			} else {
				write(frame.Header{Kind: frame.Eager, Tag: 1}, nil)
			}
			<-called
			c.e.mu.Lock()
			c.e.heartbeat.idle = 1
			c.e.mu.Unlock()
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // poll
				if h, ok := other.header(); ok && h.Kind == frame.Heartbeat {
					return
				}
				if time.Now().After(end) {
					t.Fatal("no heartbeat within a minute")
				}
			}
		})
	}
}

// A rank leaves while peers of its node are silent and their processes cannot be read: the ticker goes on until the engine stops.
func TestBeatsGoOnAfterRankHasLeft(t *testing.T) {
	s := inSteps(t, 2)
	e := s.ranks[0].e
	e.cfg.Runs = func(int) bool { return false }
	e.beats.Lock()
	e.silent = append(e.silent, e.peers[1])
	e.beats.Unlock()
	e.mu.Lock()
	e.membership.End()
	e.mu.Unlock()
	for range 2 {
		e.beat()
	}
}

// A rank of the same node sends nothing, as on a machine that gives it no processor. It is lost only when the kernel
// has not seen it run for the limit, whether it has a link or is asked for one.
func TestRankOfNodeThatRunsIsNotLostForSilence(t *testing.T) {
	for _, link := range []bool{true, false} {
		s := inSteps(t, 3)
		e, peer, runs := s.ranks[2].e, 0, true
		e.cfg.Runs = func(int) bool { return runs }
		if e.cfg.Peers = make([]Peer, 3); !link {
			peer = 1
			isend(s.ranks[2], 1, 1, 1)
		}
		lost := func() bool { return e.losses[peer] != nil }
		for i := range 10 * e.heartbeat.reach {
			runs = i%(e.heartbeat.ticks-1) == 0 || i < 5*e.heartbeat.reach
			if e.beat(); lost() {
				t.Fatalf("with a link (%v) it is lost after %d ticks: %v", link, i, e.losses[peer])
			}
		}
		runs = false
		ticks := 0
		for ; !lost() && ticks < 10*e.heartbeat.reach; ticks++ {
			e.beat()
		}
		if most := e.heartbeat.reach + 5; ticks > most {
			t.Errorf("with a link (%v) a rank that is stopped is lost after %d ticks, want at most %d", link, ticks, most)
		}
	}
}
