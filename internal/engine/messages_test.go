package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// A peer that sends an invalid frame is lost, with an error that says so. Nothing else happens: no panic, no
// hang, no byte outside a buffer.
func TestRankThatSendsInvalidFramesIsLost(t *testing.T) {
	long := make([]byte, pieceMax)
	for _, c := range []struct {
		what   string
		frames func(token uint64) []frame.Header // token: of a receive that waits for 2*EagerMax bytes
		raw    []byte
		text   string
	}{
		{"garbage", nil, long[:frame.HeaderSize], "checksum"},
		{"an eager message that is too long", func(uint64) []frame.Header {
			return []frame.Header{{Kind: frame.Eager, Tag: 1, Length: EagerMax + 1}}
		}, nil, "eager message of 65537 bytes"},
		{"data at the wrong offset", func(token uint64) []frame.Header {
			return []frame.Header{{Kind: frame.Data, Token: token, Offset: 8, Length: 8}}
		}, nil, "8 bytes at 8"},
		{"data beyond the end", func(token uint64) []frame.Header {
			return []frame.Header{{Kind: frame.Data, Token: token, Length: 2*EagerMax + 1}}
		}, nil, "131073 bytes at 0"},
		{"no data", func(token uint64) []frame.Header { return []frame.Header{{Kind: frame.Data, Token: token}} }, nil, "0 bytes at 0"},
		{"a notice that is too long", func(uint64) []frame.Header {
			return []frame.Header{{Kind: frame.Broken, Length: noticeMax + 1}}
		}, nil, "notice of 4097 bytes"},
		{"a kind that is not valid", func(uint64) []frame.Header { return []frame.Header{{Kind: frame.Connected}} }, nil, "not valid here"},
		{"an exposed message on a link that does not go through memory", func(uint64) []frame.Header {
			return []frame.Header{{Kind: frame.Expose, Tag: 1, Token: 3, Length: 8}}
		}, nil, "an exposed message of 8 bytes"},
		{"a rank that does not exist", func(uint64) []frame.Header { return []frame.Header{{Kind: frame.Lost, Tag: 7}} }, nil, "rank 7"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w, write, other := raw(t, 0)
			q, buf := irecv(w, 2*EagerMax, 1, 5) // answers an RTS
			write(frame.Header{Kind: frame.ReadyToSend, Tag: 5, Length: uint64(len(buf)), Token: 99}, nil)
			var h frame.Header
			until(t, "answering", w, func() (ok bool) { h, ok = other.header(); return ok })
			if h.Kind != frame.ClearToSend || h.Token != 99 || h.Length != uint64(len(buf)) {
				t.Fatalf("the answer to the RTS is %+v", h)
			}
			// Harmless: an unknown token, and one that another operation has.
			send := func(list ...frame.Header) {
				for _, h := range list {
					write(h, long[:min(h.Payload(), pieceMax)])
				}
			}
			send(frame.Header{Kind: frame.Data, Token: 12345, Length: 100},
				frame.Header{Kind: frame.ClearToSend, Token: 12345, Length: 100, Reply: 1},
				frame.Header{Kind: frame.ClearToSend, Token: h.Reply, Length: 100, Reply: 1},
				frame.Header{Kind: frame.Withdraw, Token: 12345},
				frame.Header{Kind: frame.Eager, Context: 77, Tag: 5, Length: 4})
			if c.frames != nil {
				send(c.frames(h.Reply)...)
			} else {
				write(frame.Header{}, c.raw)
			}
			err := await(t, w, q)
			var f *backend.Fault
			if !errors.As(err, &f) || f.Sentinel != backend.ErrPeerLost || !strings.Contains(f.Text, c.text) {
				t.Errorf("the receive ended with %v, want ErrPeerLost and %q in it", err, c.text)
			}
			if err := w.Send(patient, nil, 1, 1, backend.Standard); !errors.Is(err, backend.ErrPeerLost) {
				t.Errorf("a send to it afterwards: %v, want ErrPeerLost", err)
			}
		})
	}
}

// A rank that sends to a communicator of which it is not a member is lost, and no receive there takes its
// message.
func TestMessageFromNonMemberLosesItsSender(t *testing.T) {
	for _, kind := range []frame.Kind{frame.Eager, frame.ReadyToSend} {
		for _, when := range []string{"a receive is posted", "no receive is posted", "the communicator is not made yet"} {
			t.Run(fmt.Sprintf("%v, %s", kind, when), func(t *testing.T) {
				world := mesh(t, 3)
				forge := func() {
					h := frame.Header{Kind: kind, Context: 1, Tag: 1}
					if kind == frame.ReadyToSend {
						h.Token = 1
					}
					locked(world[2], func(e *Engine) bool {
						return e.peers[0].emit(h, nil, nil)
					})
				}
				var d []*comm
				var q *backend.Request
				switch when {
				case "a receive is posted":
					d = without(t, world, 1, 2)
					q, _ = irecv(d[0], 8, backend.AnySource, 1)
					forge()
				case "no receive is posted":
					d = without(t, world, 1, 2)
					forge()
					lostIs(t, world[0], 2)
					q, _ = irecv(d[0], 8, backend.AnySource, 1)
				default:
					forge()
					until(t, "holding the message", world[0], func() bool {
						return locked(world[0], func(e *Engine) bool { return e.arrived.Len() > 0 })
					})
					d = without(t, world, 1, 2)
					q, _ = irecv(d[0], 8, backend.AnySource, 1)
				}
				lostIs(t, world[0], 2)
				if err := d[1].Send(patient, make([]byte, 8), 0, 1, backend.Standard); err != nil {
					t.Fatal(err)
				}
				if err := await(t, d[0], q); err != nil || q.Status.Source != 1 || q.Status.Bytes != 8 {
					t.Errorf("the receive: %+v, %v, want the message of rank 1", q.Status, err)
				}
				isLost(t, "a receive from rank 2", func() error { _, err := world[0].Recv(patient, nil, 2, 1); return err }(), "invalid frame", "not a member")
			})
		}
	}
}

// A receive is canceled when a part of its short message has arrived. The next receive gets the message.
func TestPartOfMessageIsLeftToNextReceive(t *testing.T) {
	t.Run("Recv", func(t *testing.T) {
		partOfMessage(t, func(c *comm, buf []byte) (end func() error) {
			ctx, end0 := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := c.Recv(&backend.Bound{Ctx: ctx}, buf, 1, 1)
				ended <- err
			}()
			return func() error {
				end0()
				c.Wake()
				return <-ended
			}
		})
	})
	t.Run("Irecv", func(t *testing.T) {
		partOfMessage(t, func(c *comm, buf []byte) (end func() error) {
			q := new(backend.Request)
			q.Begin()
			c.Irecv(q, buf, 1, 1)
			return func() error {
				if !c.Cancel(q) {
					t.Error("Cancel says that the receive goes on")
				}
				return await(t, c, q)
			}
		})
	})
}

func partOfMessage(t *testing.T, receive func(c *comm, buf []byte) (end func() error)) {
	c, write, _ := raw(t, 0)
	body := ranktest.Fill(make([]byte, 5000), 3)
	const part = 1234
	got := make([]byte, len(body))
	end := receive(c, got)
	posted := func(e *Engine) bool { return e.posted.Len() == 1 }
	until(t, "receiving", c, func() bool { return locked(c, posted) }) // or the part would not be for it
	write(frame.Header{Kind: frame.Eager, Tag: 1, Length: uint64(len(body))}, body[:part])
	p := c.e.peers[1]
	arrived := func(*Engine) bool { return p.op != nil && p.in.Left == len(body)-part }
	until(t, "receiving a part", c, func() bool { return locked(c, arrived) })
	if err := end(); !errors.Is(err, backend.ErrCanceled) {
		t.Fatalf("with a part of the message: %v", err)
	}
	write(frame.Header{}, body[part:])
	if _, err := c.Recv(patient, got, 1, 1); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the next receive: %v, the right bytes: %v", err, bytes.Equal(got, body))
	}
}

// Sends to a rank that does not read are canceled, as at their deadline. Those of which nothing is written end. The one
// that is partly written is complete, and its buffer is the program's. Its peer gets what it had then.
func TestPartlyWrittenMessageIsSent(t *testing.T) {
	const size = 60000
	c, _, other := raw(t, 0)
	var reqs []*backend.Request
	var bufs [][]byte
	for len(reqs) < testRoom/size+3 {
		q, buf := new(backend.Request), ranktest.Fill(make([]byte, size), len(reqs))
		q.Begin()
		c.Isend(q, buf, 1, len(reqs), backend.Standard)
		reqs, bufs = append(reqs, q), append(bufs, buf)
	}
	sent := 0
	for i, q := range reqs {
		c.Cancel(q)
		if !q.Ready() {
			t.Fatalf("send %d is under way after Cancel", i)
		}
		if q.Err == nil && i == sent {
			sent++
		} else if !errors.Is(q.Err, backend.ErrCanceled) {
			t.Errorf("send %d ended with %v after %d were sent", i, q.Err, sent)
		}
		clear(bufs[i])
	}
	if sent != testRoom/size+1 {
		t.Errorf("%d messages are sent of %d for which there is room, and one partly written", sent, testRoom/size)
	}
	for i := range sent {
		var h frame.Header
		until(t, "reading", c, func() (ok bool) { h, ok = other.header(); return ok })
		body := make([]byte, 0, size)
		until(t, "reading", c, func() bool {
			other.mu.Lock()
			n := min(len(other.in), size-len(body))
			body, other.in = append(body, other.in[:n]...), other.in[n:]
			other.mu.Unlock()
			return len(body) == size
		})
		if int(h.Tag) != i || !bytes.Equal(body, ranktest.Fill(make([]byte, size), i)) {
			t.Errorf("message %d has tag %d, or other bytes", i, h.Tag)
		}
	}
	if err := c.usable(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A rank has sent many messages and left in good order. Another rank, whose write to it fails, receives all
// of them, and does not take it for lost.
func TestBrokenLinkIsReadToTheEnd(t *testing.T) {
	c, write, other := raw(t, 0)
	const messages = 100
	c.e.mu.Lock()
	p := c.e.peers[1]
	p.link.(*testLink).bite = frame.HeaderSize // each read takes one frame
	for range messages {
		write(frame.Header{Kind: frame.Eager, Tag: 1}, nil)
	}
	write(frame.Header{Kind: frame.Goodbye}, nil)
	other.Close()
	p.emit(frame.Header{Kind: frame.Heartbeat}, nil, nil)
	if p.writeErr == nil {
		t.Error("a write to a closed link has not failed")
	}
	p.move()
	c.e.mu.Unlock()
	for i := range messages {
		if _, err := c.Recv(patient, nil, 1, 1); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if lost, left := c.Failed(), c.Left(); len(lost) > 0 || len(left) != 1 {
		t.Errorf("ranks %v are lost, and %v have left", lost, left)
	}
}

// The receive of a message that Mprobe took ends with its communicator, as others do, whatever its record was
// used for before.
func TestImrecvOnBrokenCommunicator(t *testing.T) {
	c, write := single(t)
	internal := int(backend.CheckTag(0))
	write(frame.Header{Kind: frame.Eager, Tag: int32(internal)}, nil)
	if _, err := c.Recv(patient, nil, 1, internal); err != nil {
		t.Fatal(err)
	}
	write(frame.Header{Kind: frame.ReadyToSend, Tag: 1, Length: 8, Token: 1}, nil)
	m, _, _, err := c.Mprobe(patient, 1, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	q := &backend.Request{}
	q.Begin()
	c.Imrecv(q, m, make([]byte, 8))
	c.Break(&backend.Fault{Sentinel: backend.ErrTimeout, Text: "because of the test"})
	if err := await(t, c, q); !errors.Is(err, backend.ErrBroken) {
		t.Errorf("the receive: %v, want ErrBroken", err)
	}
}

// A waiter for something that a Notify makes ready is woken after the Notify. The completion of the request
// has woken it earlier, and it may sleep again by then.
func TestWaiterIsWokenAfterNotify(t *testing.T) {
	w, _, _ := raw(t, -1)
	e := w.e
	asleep := func() {
		for !e.crew.Rests() {
			runtime.Gosched()
		}
	}
	var done flag
	q := &backend.Request{Notify: func(*backend.Request) {
		asleep()
		done.set.Store(true)
	}}
	q.Begin()
	w.Irecv(q, nil, 1, 1)
	waited := make(chan error)
	go func() { waited <- w.Await(patient, &done) }()
	asleep()
	if !w.Cancel(q) {
		t.Error("a receive that has not matched was not canceled")
	}
	if e.crew.Rests() {
		t.Error("the waiter has not been woken")
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// A waiter sleeps while another goroutine writes frames that the link holds back for lack of room. The waiter
// wakes to write them when there is room.
func TestWaiterIsWokenToFlushLink(t *testing.T) {
	w, _, other := raw(t, -1)
	l := other.other
	var done flag
	waited := make(chan error)
	go func() { waited <- w.Await(patient, &done) }()
	for w.e.mu.Lock(); !w.e.crew.Rests(); w.e.mu.Lock() {
		w.e.mu.Unlock()
		runtime.Gosched()
	}
	l.holds = true
	for n := 0; !l.Holds(); n++ {
		if !w.e.crew.Rests() {
			t.Errorf("the waiter has been woken by %d frames for which there was room", n)
			break
		}
		w.e.peers[1].emit(frame.Header{Kind: frame.Broken}, make([]byte, noticeMax), nil)
	}
	w.e.mu.Unlock()
	holds := func(*Engine) bool { return l.Holds() }
	for end := time.Now().Add(time.Minute); locked(w, holds) && time.Now().Before(end); runtime.Gosched() {
		other.discard()
	}
	if locked(w, holds) {
		t.Error("the waiter sleeps, and the link holds frames for which there is room")
	}
	done.set.Store(true)
	w.Wake()
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
