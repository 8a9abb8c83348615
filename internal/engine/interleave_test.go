//go:build interleave && linux

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// The explorations of this file run two engines with a link through memory. The engine's lock and the words of the
// link are what the threads share. At every release of the lock every operation is in exactly one place (checkPlaces),
// and in the end every operation has ended.

const exploreData = 128 // bytes of a data ring: an eager message has 16 at most

// exploreEngines explores what threads do with the two ranks of a job.
func exploreEngines(t *testing.T, copies bool, cfg interleave.Config, program func(x *interleave.Run, a, b *comm)) {
	t.Helper()
	size := memlink.Size(exploreData)
	seg, err := shmem.Create("engine-explore", 2*size)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	if cfg.Preemptions == 0 {
		cfg.Preemptions = 2
	}
	check := atUnlock
	defer func() { atUnlock = check }()
	interleave.Explore(t, cfg, func(x *interleave.Run) {
		atUnlock = func(e *Engine) {
			if err := checkPlaces(e); err != nil {
				x.Errorf("rank %d: %v", e.me, err)
			}
		}
		clear(shmem.Slice[byte](seg, 0, 2*size))
		ranks, mailboxes := make([]*comm, 2), new([2]memlink.Mailbox)
		for r := range ranks {
			e := New(Config{Rank: r, Peers: make([]Peer, 2), Heartbeat: -1, Sleeper: newSimSleeper(nil), Manual: true,
				Now: func() time.Time { return simBegin }})
			e.Connect(1-r, memlink.New(memlink.Config{Segment: seg, Out: r * size, In: (1 - r) * size, Data: exploreData, Says: &mailboxes[r], Hears: &mailboxes[1-r], Peer: shmem.Self().Process(), Copies: copies}))
			w, err := e.Start()
			if err != nil {
				t.Fatal(err)
			}
			ranks[r] = w.(*comm)
			x.Name(&e.mu.mu, "lock of rank %d", r)
		}
		x.Check(func() error {
			for _, c := range ranks {
				if e := c.e; e.active != 0 || e.posted.Len() > 0 {
					return fmt.Errorf("rank %d: %d operations have not ended, %d receives are posted", e.me, e.active, e.posted.Len())
				}
			}
			return nil
		})
		program(x, ranks[0], ranks[1])
	})
}

// finished polls until a request has ended.
func finished(c *comm, q *backend.Request) error {
	pollUntil(c, q.Ready)
	return q.Err
}

// pollUntil makes progress until something holds, which is looked at with the lock held.
func pollUntil(c *comm, holds func() bool) {
	for {
		c.e.mu.Lock()
		moved, over := c.e.progress(), holds()
		c.e.mu.Unlock()
		if over {
			return
		}
		if !moved {
			word.Yield()
		}
	}
}

// way is how a message goes.
type way struct {
	name   string
	n      int
	copies bool // the kernel copies it, though it is short
}

var ways = []way{{"through the rings", 40, false}, {"by the kernel", 8, true}}

func (w way) send(c *comm, number, dest int) *backend.Request {
	q, e := &backend.Request{}, c.e
	q.Begin()
	if !w.copies {
		c.Isend(q, numbered(w.n, number), dest, 1, backend.Synchronous)
		return q
	}
	e.mu.Lock()
	o := c.begin(q)
	o.buf, o.peer, o.tag, o.size, o.at = numbered(w.n, number), dest, 1, w.n, 0
	if !e.expose(e.peers[dest], o, frame.Header{Context: c.id, Tag: 1, Length: uint64(w.n)}) {
		panic("the link exposes no more messages")
	}
	e.mu.Unlock()
	return q
}

func receiving(c *comm, buf []byte, source int) *backend.Request {
	q := &backend.Request{}
	q.Begin()
	c.Irecv(q, buf, source, 1)
	return q
}

// numbered returns a message with a number.
func numbered(n, number int) []byte { return bytes.Repeat([]byte{byte(number)}, n) }

var errLate = &backend.Fault{Sentinel: backend.ErrTimeout, Text: "because of the test"}

// late gives an operation up, as a blocking call does at its deadline after it has looked once more.
func late(c *comm, q *backend.Request, look bool) {
	e := c.e
	e.mu.Lock()
	ended := q.Ready() || e.cancel(q.Impl.(*op), q, errLate)
	e.mu.Unlock()
	if look {
		e.poll()
	}
	if ended {
		return
	}
	e.mu.Lock()
	if !q.Ready() {
		e.abandon(q.Impl.(*op), errLate)
	}
	e.mu.Unlock()
}

// quit polls until a rank has no operation.
func quit(c *comm) { pollUntil(c, func() bool { return c.e.active == 0 }) }

// A receive is given up at its deadline while its message comes: it has the message, or leaves it to the next receive,
// or breaks the communicator. A receive that returns nil breaks nothing.
func TestInterleaveDeadlineOfReceive(t *testing.T) {
	for _, way := range append(ways, way{"at once", 8, false}) {
		t.Run(way.name, func(t *testing.T) {
			exploreEngines(t, way.copies, interleave.Config{}, func(x *interleave.Run, a, b *comm) {
				var q, r *backend.Request
				buf := make([]byte, way.n)
				x.Go("sender", func() {
					q = way.send(a, 1, 1)
					finished(a, q)
				})
				x.Go("receiver", func() {
					r = receiving(b, buf, 0)
					late(b, r, true)
					if r.Ready() && r.Err != nil && b.brk.Load() == nil {
						if err := finished(b, receiving(b, buf, 0)); err != nil {
							x.Errorf("the next receive: %v", err)
						}
					}
					quit(b)
				})
				x.Check(func() error {
					broken := b.brk.Load() != nil
					switch {
					case r.Ready() && r.Err == nil && broken:
						return errors.New("the receive returns nil, and breaks the communicator")
					case !r.Ready() && !broken:
						return errors.New("the receive has not ended, and has broken nothing")
					case !broken && (q.Err != nil || !bytes.Equal(buf, numbered(way.n, 1))):
						return fmt.Errorf("the send ends with %v", q.Err)
					case q.Err != nil && !errors.Is(q.Err, backend.ErrBroken):
						return fmt.Errorf("the send ends with %v", q.Err)
					}
					return nil
				})
			})
		})
	}
}

// A send is given up at its deadline while the receiver takes its message: the receive has the message or ends, or is for the
// next message.
func TestInterleaveDeadlineOfSend(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			exploreEngines(t, way.copies, interleave.Config{}, func(x *interleave.Run, a, b *comm) {
				var q, r *backend.Request
				buf := make([]byte, way.n)
				again := false
				x.Go("sender", func() {
					q = way.send(a, 1, 1)
					late(a, q, false)
					if again = q.Err != nil && a.brk.Load() == nil; again {
						if err := finished(a, way.send(a, 2, 1)); err != nil {
							x.Errorf("the next send: %v", err)
						}
					}
					quit(a)
				})
				x.Go("receiver", func() {
					r = receiving(b, buf, 0)
					if err := finished(b, r); errors.Is(err, backend.ErrCanceled) && b.brk.Load() == nil {
						r = receiving(b, buf, 0)
						finished(b, r)
					}
				})
				x.Check(func() error {
					broken, want := a.brk.Load() != nil, 1
					if again {
						want = 2
					}
					switch {
					case q.Err == nil && broken:
						return errors.New("the send returns nil, and breaks the communicator")
					case !broken && (r.Err != nil || !bytes.Equal(buf, numbered(way.n, want))):
						return fmt.Errorf("the receive ends with %v, message %d", r.Err, buf[0])
					case broken && r.Err != nil && !errors.Is(r.Err, backend.ErrBroken):
						return fmt.Errorf("the receive ends with %v", r.Err)
					}
					return nil
				})
			})
		})
	}
}

// A goroutine cancels a receive while another one of its rank waits for it, and the message comes.
func TestInterleaveCancelBesideWait(t *testing.T) {
	for _, way := range append(ways, way{"at once", 8, false}) {
		t.Run(way.name, func(t *testing.T) {
			n := way.n
			exploreEngines(t, way.copies, interleave.Config{Preemptions: 1}, func(x *interleave.Run, a, b *comm) {
				buf, next := make([]byte, n), make([]byte, n)
				r := receiving(b, buf, 0)
				canceled := false
				x.Go("sender", func() { finished(a, way.send(a, 1, 1)) })
				x.Go("waiter", func() { finished(b, r) })
				x.Go("canceler", func() {
					if canceled = b.Cancel(r); canceled {
						if err := finished(b, receiving(b, next, 0)); err != nil {
							x.Errorf("the next receive: %v", err)
						}
					}
				})
				x.Check(func() error {
					if canceled {
						buf = next
					}
					if canceled != errors.Is(r.Err, backend.ErrCanceled) || !bytes.Equal(buf, numbered(n, 1)) {
						return fmt.Errorf("the receive was canceled: %v; it ends with %v", canceled, r.Err)
					}
					return nil
				})
			})
		})
	}
}

// Two goroutines of a rank want one message, one with a receive, the other with Mprobe: one of them gets it.
func TestInterleaveMprobeBesideReceive(t *testing.T) {
	for _, way := range append(ways, way{"at once", 8, false}) {
		t.Run(way.name, func(t *testing.T) {
			exploreEngines(t, way.copies, interleave.Config{Preemptions: -1}, func(x *interleave.Run, a, b *comm) {
				buf, taken := make([]byte, way.n), make([]byte, way.n)
				var r, m *backend.Request
				x.Go("sender", func() { finished(a, way.send(a, 1, 1)) })
				x.Go("receiver", func() {
					r = receiving(b, buf, 0)
					pollUntil(b, func() bool { return r.Ready() || m != nil && m.Ready() })
					if !r.Ready() && !b.Cancel(r) {
						x.Errorf("a receive whose message another one has got is not canceled")
					}
				})
				x.Go("prober", func() {
					for {
						got, _, found, err := b.Mprobe(nil, 0, 1, false)
						if err != nil {
							x.Errorf("Mprobe: %v", err)
						}
						if found {
							q := &backend.Request{}
							q.Begin()
							b.Imrecv(q, got, taken)
							b.e.mu.Lock()
							m = q
							b.e.mu.Unlock()
							finished(b, q)
							return
						}
						b.e.mu.Lock()
						over := r != nil && r.Ready()
						b.e.mu.Unlock()
						if over {
							return
						}
						word.Yield()
					}
				})
				x.Check(func() error {
					want := numbered(way.n, 1)
					if bytes.Equal(buf, want) == bytes.Equal(taken, want) || (m != nil) != bytes.Equal(taken, want) {
						return fmt.Errorf("the receive ends with %v and % x; Mprobe has found the message: %v, % x", r.Err, buf, m != nil, taken)
					}
					return nil
				})
			})
		})
	}
}

// A rank sends itself a message that is copied in parts, and gives the send or the receive up.
func TestInterleaveMessageToOneself(t *testing.T) {
	const n = 2*moveMax + 1
	for _, lateSend := range []bool{false, true} {
		t.Run(fmt.Sprintf("the send is given up %v", lateSend), func(t *testing.T) {
			exploreEngines(t, false, interleave.Config{}, func(x *interleave.Run, a, _ *comm) {
				var q, r *backend.Request
				buf := make([]byte, n)
				way := way{n: n}
				x.Go("sender", func() {
					q = way.send(a, 1, 0)
					if lateSend {
						late(a, q, true)
					} else {
						finished(a, q)
					}
				})
				x.Go("receiver", func() {
					r = receiving(a, buf, 0)
					if lateSend {
						pollUntil(a, func() bool { return r.Ready() || q != nil && q.Ready() })
						a.Cancel(r)
					} else {
						late(a, r, true)
						if r.Err != nil && a.brk.Load() == nil {
							finished(a, receiving(a, buf, 0))
						}
					}
				})
				x.Check(func() error {
					broken, right := a.brk.Load() != nil, bytes.Equal(buf, numbered(n, 1))
					if (q.Err == nil) != right || right && broken {
						return fmt.Errorf("the send ends with %v, the receive with %v; the right bytes: %v, broken: %v", q.Err, r.Err, right, broken)
					}
					return nil
				})
			})
		})
	}
}
