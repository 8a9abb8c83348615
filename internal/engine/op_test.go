package engine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// canceledAfterMprobe takes a message with Mprobe, lets its sender cancel it, and receives it.
func canceledAfterMprobe(t *testing.T, c backend.Comm, source int, cancel func()) {
	t.Helper()
	m, _, _, err := c.Mprobe(patient, source, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range 3 {
		c.Poll()
	}
	q := &backend.Request{}
	q.Begin()
	c.Imrecv(q, m, make([]byte, 1<<20))
	if !q.Ready() || !errors.Is(q.Err, backend.ErrCanceled) {
		t.Errorf("the receive of a canceled message has ended: %v; %v, want ErrCanceled", q.Ready(), q.Err)
	}
}

func TestReceiveOfCanceledMessageEndsAfterMprobe(t *testing.T) {
	t.Run("of another rank", func(t *testing.T) {
		c, write := single(t)
		write(frame.Header{Kind: frame.ReadyToSend, Tag: 1, Length: 1 << 20, Token: 9}, nil)
		canceledAfterMprobe(t, c, 1, func() { write(frame.Header{Kind: frame.Withdraw, Token: 9}, nil) })
	})
	t.Run("of this rank", func(t *testing.T) {
		c, _ := single(t)
		q := isend(c, 1<<20, 0, 1)
		canceledAfterMprobe(t, c, 0, func() {
			if !c.Cancel(q) || !errors.Is(q.Err, backend.ErrCanceled) {
				t.Errorf("the send was not canceled: %v", q.Err)
			}
		})
	})
}

// A communicator is closed while a message of this rank to itself waits there. The next messages are not taken for
// canceled.
func TestClosingForgetsMessagesToOneself(t *testing.T) {
	ranks := mesh(t, 2)
	d := derive(t, ranks, 1, 0, 1)
	q := isend(d[0], 1<<20, 0, 1)
	d[0].Close()
	if !q.Ready() || !errors.Is(q.Err, backend.ErrClosed) {
		t.Errorf("the send: %v, %v, want ErrClosed", q.Ready(), q.Err)
	}
	for i := range 3 {
		if err := ranks[1].Send(patient, []byte{byte(i)}, 0, 2, backend.Standard); err != nil {
			t.Fatal(err)
		}
		m, _, _, err := ranks[0].Mprobe(patient, 1, 2, true)
		if err != nil {
			t.Fatal(err)
		}
		r, buf := &backend.Request{}, make([]byte, 1)
		r.Begin()
		ranks[0].Imrecv(r, m, buf)
		if err := await(t, ranks[0], r); err != nil || buf[0] != byte(i) {
			t.Errorf("message %d: %v, %v", i, err, buf)
		}
	}
}

// A long message to oneself is copied in parts. Between them other goroutines have the engine's lock: heartbeats go
// out, however long the message is.
func TestLongMessageToOneselfIsCopiedInParts(t *testing.T) {
	const size = 5*moveMax + 1234
	message := ranktest.Fill(make([]byte, size), 3)
	for _, room := range []int{size, 2*moveMax + 1, moveMax} {
		for _, first := range []string{"the receive", "the send", "the send, taken by Mprobe"} {
			c, _, _ := raw(t, -1)
			in, out, buf := &backend.Request{}, &backend.Request{}, make([]byte, room)
			in.Begin()
			out.Begin()
			send := func() { c.Isend(out, message, 0, 1, backend.Standard) }
			switch first {
			case "the receive":
				c.Irecv(in, buf, 0, 1)
				send()
			case "the send":
				send()
				c.Irecv(in, buf, 0, 1)
			default:
				send()
				m, _, _, err := c.Mprobe(patient, 0, 1, true)
				if err != nil {
					t.Fatal(err)
				}
				c.Imrecv(in, m, buf)
			}
			parts := 0
			for more := true; more; parts++ {
				c.e.mu.Lock()
				before := 0
				if more = len(c.e.moving) > 0; more {
					before = c.e.moving[0].at
					if c.e.cancel(in.Impl.(*op), in, errCut) || c.e.cancel(out.Impl.(*op), out, errCut) {
						t.Error("a message that has matched was canceled")
					}
				}
				c.e.progress()
				if len(c.e.moving) > 0 && c.e.moving[0].at-before > moveMax {
					t.Errorf("%d bytes are copied with the lock held, want at most %d", c.e.moving[0].at-before, moveMax)
				}
				c.e.mu.Unlock()
			}
			var want error
			if room < size {
				want = backend.ErrTruncate
			}
			if !out.Ready() || out.Err != nil || !in.Ready() || !errors.Is(in.Err, want) || in.Status != (backend.Status{Tag: 1, Bytes: size}) ||
				!bytes.Equal(buf, message[:room]) {
				t.Errorf("%d bytes into %d, %s first: %v; %v, %+v; the right bytes: %v", size, room, first, out.Err, in.Err, in.Status, bytes.Equal(buf, message[:room]))
			}
		}
	}
}

// What ends a message to oneself while it is copied ends both the send and the receive.
func TestBothEndsOfMessageToOneselfEnd(t *testing.T) {
	timeout := &backend.Fault{Sentinel: backend.ErrTimeout, Text: "because of the test"}
	for _, c := range []struct {
		what       string
		end        func(d *comm, send, recv *op)
		send, recv error
	}{
		{"the communicator is closed", func(d *comm, _, _ *op) { d.Close() }, backend.ErrClosed, backend.ErrClosed},
		{"the communicator is broken", func(d *comm, _, _ *op) { d.Break(timeout) }, backend.ErrBroken, backend.ErrBroken},
		{"the send is given up", func(d *comm, send, _ *op) {
			locked(d, func(e *Engine) bool { e.drop(send, timeout); d.breakEverywhere(timeout); return true })
		}, backend.ErrTimeout, backend.ErrBroken},
		{"the receive is given up", func(d *comm, _, recv *op) {
			locked(d, func(e *Engine) bool { e.drop(recv, timeout); d.breakEverywhere(timeout); return true })
		}, backend.ErrBroken, backend.ErrTimeout},
	} {
		w, _, _ := raw(t, -1)
		made, err := w.Derive(nil, []int{0, 1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		d := made.(*comm)
		w.e.mu.Lock() // the ticker would go on with the copy
		in, out := &backend.Request{}, &backend.Request{}
		in.Begin()
		out.Begin()
		recv, send := d.begin(in), d.begin(out)
		w.e.recv(recv, make([]byte, 100*moveMax), d.pattern(0, 1))
		w.e.send(send, make([]byte, 100*moveMax), 0, 1, backend.Standard)
		w.e.progress()
		w.e.mu.Unlock()
		c.end(d, send, recv)
		if !out.Ready() || !errors.Is(out.Err, c.send) || !in.Ready() || !errors.Is(in.Err, c.recv) {
			t.Errorf("%s: the send: %v, want %v; the receive: %v, want %v", c.what, out.Err, c.send, in.Err, c.recv)
		}
		locked(w, func(e *Engine) bool {
			if len(e.moving) > 0 || e.active > 0 {
				t.Errorf("%s: %d messages are copied, %d operations have not ended", c.what, len(e.moving), e.active)
			}
			return true
		})
	}
}

// A goroutine sleeps while another one of its rank sends it a long message: it is woken, to copy that.
func TestSleeperIsWokenToCopyMessageToOneself(t *testing.T) {
	z := newSimSleeper(&sim{now: simBegin})
	w, err := New(Config{Peers: make([]Peer, 1), Sleeper: z, Manual: true}).Start()
	if err != nil {
		t.Fatal(err)
	}
	c := w.(*comm)
	var done flag
	go func() {
		c.Await(&backend.Bound{}, &done)
		z.handed <- nil
	}()
	z.run() // until it sleeps
	in, _ := irecv(c, 3*moveMax, 0, 1)
	out := isend(c, 3*moveMax, 0, 1)
	if !z.rung {
		t.Error("the sleeper is not rung")
	}
	for !in.Ready() || !out.Ready() {
		if !locked(c, func(e *Engine) bool { return e.progress() }) {
			t.Fatal("the message is not copied")
		}
	}
	done.set.Store(true)
	z.resume <- struct{}{}
	z.run()
}

// A send is canceled while its CTS is on the way. The message has matched, so it is sent.
func TestSendThatMatchedBeforeCancelIsSent(t *testing.T) {
	c, write, other := raw(t, 0)
	q := isend(c, 2*EagerMax, 1, 5)
	next := func(kind frame.Kind) (h frame.Header) {
		until(t, "sending", c, func() (ok bool) { h, ok = other.header(); return ok })
		if h.Kind != kind {
			t.Fatalf("the next frame is %+v, want %v", h, kind)
		}
		return h
	}
	token := next(frame.ReadyToSend).Token
	if c.Cancel(q) || q.Ready() {
		t.Errorf("the send ends with %v before the receiver has answered", q.Err)
	}
	if h := next(frame.Withdraw); h.Token != token || h.Tag != 0 {
		t.Errorf("the question is %+v, want one for %d", h, token)
	}
	write(frame.Header{Kind: frame.ClearToSend, Token: token, Reply: 7}, nil) // of a receive without room
	write(frame.Header{Kind: frame.Withdrawn, Token: token}, nil)
	if err := await(t, c, q); err != nil {
		t.Errorf("a send that has matched: %v", err)
	}
	next(frame.Data)
}

// A send is canceled, and instead of an answer its receiver ends: in good order the message had not matched.
func TestCanceledSendEndsWithItsReceiver(t *testing.T) {
	type writer = func(h frame.Header, body []byte)
	for _, x := range []struct {
		why  string
		end  func(write writer, other *testLink)
		want error
	}{
		{"it closes the communicator", func(write writer, _ *testLink) { write(frame.Header{Kind: frame.Closed, Context: 2}, nil) }, backend.ErrCanceled},
		{"it leaves the job", func(write writer, other *testLink) {
			write(frame.Header{Kind: frame.Goodbye}, nil)
			other.Close()
		}, backend.ErrCanceled},
		{"it dies", func(_ writer, other *testLink) { other.Close() }, backend.ErrPeerLost},
	} {
		w, write, other := raw(t, 0)
		c := both(t, w, 2)
		q := isend(c, 2*EagerMax, 1, 5)
		if c.Cancel(q) || q.Ready() {
			t.Errorf("the send ends with %v before the receiver has answered", q.Err)
		}
		x.end(write, other)
		if err := await(t, c, q); !errors.Is(err, x.want) {
			t.Errorf("%s: the send ends with %v, want %v", x.why, err, x.want)
		}
	}
}
