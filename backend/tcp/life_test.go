//go:build linux || darwin

package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// raw returns rank 0 of a job of 2 and the other's end of their connection.
func raw(t *testing.T, heartbeat time.Duration) (c *comm, write func(h wire.Header, body []byte), other net.Conn) {
	t.Helper()
	a, b := pair(t)
	fd, err := takeSocket(a)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newEngine(0, []peer{{}, {pid: 7, host: "there", node: 1}},
		[]conn{{fd: -1}, {fd: fd, enc: &wire.Encoder{}, dec: &wire.Decoder{}}}, false, heartbeat)
	if err != nil {
		t.Fatal(err)
	}
	var enc wire.Encoder
	write = func(h wire.Header, body []byte) {
		t.Helper()
		var head [wire.HeaderSize]byte
		if h.Kind != 0 {
			enc.Encode(&head, &h)
			body = append(head[:], body...)
		}
		if _, err := b.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { b.Close(); w.Close() })
	return w.(*comm), write, b
}

// Heartbeats are on by default. If they are turned off, they are still sent, because others may have a limit.
func TestLife(t *testing.T) {
	for _, c := range []struct {
		set, limit, every  time.Duration
		ticks, reach, beat int
	}{
		{0, 10 * time.Second, 100 * time.Millisecond, 100, 100, 25},
		{-1, -1, 100 * time.Millisecond, 100, 100, 25},
		{HeartbeatMin, 100 * time.Millisecond, 10 * time.Millisecond, 10, 100, 2},
		{500 * time.Millisecond, 500 * time.Millisecond, 50 * time.Millisecond, 10, 20, 2},
		{time.Minute, time.Minute, 100 * time.Millisecond, 600, 600, 150},
	} {
		want := life{limit: c.limit, every: c.every, ticks: c.ticks, reach: c.reach, beat: c.beat}
		if got := newLife(c.set); got != want {
			t.Errorf("a limit of %v: %+v, want %+v", c.set, got, want)
		}
	}
	for _, limit := range []time.Duration{0, -1, time.Hour} {
		c, _, other := raw(t, limit)
		for range c.e.life.beat {
			c.e.beat()
		}
		wantHeartbeat(t, limit, other)
	}
	// A rank that gets few of its ticks sends as many, with something said before the last tick too.
	c, _, other := raw(t, time.Hour)
	for _, spoke := range []bool{false, true} {
		c.e.mu.Lock()
		c.e.links[1].spoke = spoke
		c.e.ticked = time.Now().Add(-time.Duration(c.e.life.beat+1) * c.e.life.every)
		c.e.mu.Unlock()
		c.e.beat()
		wantHeartbeat(t, time.Hour, other)
	}
}

func wantHeartbeat(t *testing.T, limit time.Duration, other net.Conn) {
	t.Helper()
	var head [wire.HeaderSize]byte
	other.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(other, head[:]); err != nil {
		t.Fatalf("a limit of %v: no heartbeat: %v", limit, err)
	}
	var h wire.Header
	if err := (&wire.Decoder{}).Decode(&h, &head); h.Kind != wire.Heartbeat {
		t.Errorf("a limit of %v: there is %v, %v, want a heartbeat", limit, h.Kind, err)
	}
}

// A silent rank is lost, and one that sends heartbeats is not.
func TestSilence(t *testing.T) {
	c, write, _ := raw(t, HeartbeatMin)
	write(wire.Header{Kind: wire.Heartbeat}, nil)
	_, err := c.Recv(patient, make([]byte, 1), 1, 1) // a waiter sleeps meanwhile
	isLost(t, "a receive", err, "rank 1 (process 7 on there) was silent for 100ms")

	c, write, _ = raw(t, -1)
	for range 5 * c.e.life.ticks { // no limit
		c.e.beat()
	}
	write(wire.Header{Kind: wire.Eager, Tag: 1}, nil)
	if _, err := c.Recv(patient, nil, 1, 1); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	// Bytes that have arrived and were not read count, and one look in so many ticks is enough.
	c, write, _ = raw(t, time.Hour)
	for range 5 {
		write(wire.Header{Kind: wire.Heartbeat}, nil)
		for c.e.links[1].unread(t) == 0 {
		}
		for range c.e.life.ticks {
			c.e.beat()
		}
	}
	if lost := c.Lost(); lost != nil {
		t.Errorf("%v are lost, and have sent heartbeats", lost)
	}
	// Nothing comes: two ticks after the limit at the latest that is a loss, and not much before. The engine has ticks
	// of its own beside those counted here.
	c, _, _ = raw(t, time.Hour)
	ticks := 0
	for ; c.Lost() == nil && ticks <= 2*c.e.life.ticks; ticks++ {
		c.e.beat()
	}
	if most := c.e.life.ticks + 2; ticks > most || ticks < most/2 {
		t.Errorf("a silent rank is lost after %d ticks, and the limit is %d", ticks, c.e.life.ticks)
	}
}

// unread is how much there is to read on a link's socket.
func (l *link) unread(t *testing.T) int {
	t.Helper()
	l.e.mu.Lock()
	defer l.e.unlock()
	var p pollset
	p.add(l.fd, false)
	p.wait(-1)
	if p.ready(0) {
		return 1
	}
	return 0
}

// A receive that is ended when a part of its short message is here leaves the message to the next one.
func TestPutBack(t *testing.T) {
	c, write, _ := raw(t, 0)
	body := fill(make([]byte, 5000), 3)
	const part = 1234
	got := make([]byte, len(body))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Recv(&backend.Bound{Ctx: ctx}, got, 1, 1)
		ended <- err
	}()
	until := func(holds func() bool) {
		for t.Context().Err() == nil {
			c.e.mu.Lock()
			ok := holds()
			c.e.mu.Unlock()
			if ok {
				return
			}
			runtime.Gosched()
		}
	}
	until(func() bool { return c.e.posted.Len() == 1 }) // or the part would not be for it
	write(wire.Header{Kind: wire.Eager, Tag: 1, Length: uint64(len(body))}, body[:part])
	l := c.e.links[1]
	until(func() bool { return l.op != nil && l.left == len(body)-part })
	end()
	c.Wake()
	if err := <-ended; !errors.Is(err, backend.ErrCanceled) {
		t.Fatalf("with a part of the message: %v", err)
	}
	write(wire.Header{}, body[part:])
	if _, err := c.Recv(patient, got, 1, 1); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the next receive: %v, the right bytes: %v", err, bytes.Equal(got, body))
	}
}
