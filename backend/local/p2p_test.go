package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// message is n bytes that depend on every argument.
func message(n, from, seq int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + from*31 + seq*101 + i>>8)
	}
	return b
}

var lengths = []int{0, 1, 8, 1000, lockedMax, lockedMax + 1, copyMax, copyMax + 1, 200_000}

// Messages of one tag arrive as sent and in order, whether the receive or the
// message is there first, for all lengths and ways to send and receive.
func TestMessagesArriveCompleteAndInOrder(t *testing.T) {
	const count = 300
	for seed := range uint64(6) {
		ranks(t, 2, func(t testing.TB, c *Comm) {
			pick := rand.New(rand.NewPCG(seed, 1)) // the same on both
			var pending []*backend.Request
			for i := range count {
				n := lengths[pick.IntN(len(lengths))]
				how, mode := pick.IntN(2), backend.Mode(pick.IntN(2))
				if c.rank == 0 {
					buf := message(n, 0, i)
					if how == 0 {
						must(t, c.Send(nil, buf, 1, 5, mode))
					} else {
						pending = append(pending, c.isend(buf, 1, 5, mode))
					}
					continue
				}
				buf := make([]byte, n)
				st, err := c.Recv(nil, buf, 0, 5)
				if err != nil || st != (backend.Status{Source: 0, Tag: 5, Bytes: n}) || !bytes.Equal(buf, message(n, 0, i)) {
					t.Errorf("message %d of %d bytes: %+v, %v", i, n, st, err)
				}
			}
			for _, r := range pending {
				_, err := c.wait(t, r)
				must(t, err)
			}
		})
	}
}

func TestTagsCanOvertakeEachOther(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		if c.rank == 0 {
			for tag := range 50 {
				must(t, c.Send(nil, message(10, 0, tag), 1, tag, backend.Standard))
			}
			return
		}
		buf := make([]byte, 10)
		for tag := 49; tag >= 0; tag-- {
			st, err := c.Recv(nil, buf, backend.AnySource, tag)
			if err != nil || st.Tag != tag || !bytes.Equal(buf, message(10, 0, tag)) {
				t.Errorf("tag %d: %+v, %v", tag, st, err)
			}
		}
	})
}

// AnyTag takes user tags only.
func TestAnyTagLeavesInternalTags(t *testing.T) {
	ranks(t, 1, func(t testing.TB, c *Comm) {
		must(t, c.Send(nil, []byte("internal"), 0, -7, backend.Standard))
		must(t, c.Send(nil, []byte("user"), 0, 7, backend.Standard))
		buf := make([]byte, 10)
		if st, err := c.Recv(nil, buf, 0, backend.AnyTag); err != nil || st.Tag != 7 {
			t.Errorf("got %+v, %v", st, err)
		}
		if st, err := c.Recv(nil, buf, backend.AnySource, -7); err != nil || string(buf[:st.Bytes]) != "internal" {
			t.Errorf("got %+v, %v", st, err)
		}
	})
}

// Posted receives get messages in the order posted, wildcards among them.
func TestPostedReceivesMatchInOrder(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		if c.rank == 0 {
			c.sync(t)
			for i := range 4 {
				must(t, c.Send(nil, []byte{byte(i)}, 1, i%2, backend.Standard))
			}
			return
		}
		var bufs [4][1]byte
		rs := []*backend.Request{
			c.irecv(bufs[0][:], 0, 1),
			c.irecv(bufs[1][:], backend.AnySource, backend.AnyTag),
			c.irecv(bufs[2][:], 0, backend.AnyTag),
			c.irecv(bufs[3][:], backend.AnySource, 1),
		}
		c.sync(t)
		for i, want := range []byte{1, 0, 2, 3} {
			if _, err := c.wait(t, rs[i]); err != nil || bufs[i][0] != want {
				t.Errorf("receive %d got message %d, want %d (%v)", i, bufs[i][0], want, err)
			}
		}
	})
}

func TestTruncationWritesInsideTheBufferOnly(t *testing.T) {
	for _, first := range []string{"receive", "message"} {
		for _, n := range []int{9, 5000, copyMax + 100} {
			ranks(t, 2, func(t testing.TB, c *Comm) {
				if c.rank == 0 {
					if first == "receive" {
						c.sync(t)
					}
					r := c.isend(message(n, 0, 0), 1, 3, backend.Standard)
					if first == "message" {
						c.sync(t)
					}
					if _, err := c.wait(t, r); err != nil {
						t.Errorf("the sender got %v", err)
					}
					return
				}
				mem := bytes.Repeat([]byte{0xa5}, 64)
				var r *backend.Request
				if first == "receive" {
					r = c.irecv(mem[28:36], 0, 3)
				}
				c.sync(t)
				if first == "message" {
					r = c.irecv(mem[28:36], 0, 3)
				}
				st, err := c.wait(t, r)
				if !errors.Is(err, backend.ErrTruncate) || st != (backend.Status{Source: 0, Tag: 3, Bytes: n}) {
					t.Errorf("got %+v, %v", st, err)
				}
				want := append(append(bytes.Repeat([]byte{0xa5}, 28), message(n, 0, 0)[:8]...), bytes.Repeat([]byte{0xa5}, 28)...)
				if !bytes.Equal(mem, want) {
					t.Errorf("the buffer and what is around it: %x", mem)
				}
			})
		}
	}
}

// A synchronous send, and a long one, complete when the receive has matched; a
// short standard one at once.
func TestLongAndSynchronousSendsWaitForTheReceive(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		long := make([]byte, copyMax+1)
		if c.rank == 0 {
			short := c.isend([]byte{1}, 1, 0, backend.Standard)
			sync := c.isend([]byte{2}, 1, 1, backend.Synchronous)
			big := c.isend(long, 1, 2, backend.Standard)
			if !short.Ready() || sync.Ready() || big.Ready() {
				t.Errorf("complete before the receive: short %v, synchronous %v, long %v", short.Ready(), sync.Ready(), big.Ready())
			}
			c.sync(t)
			for _, r := range []*backend.Request{sync, big} {
				_, err := c.wait(t, r)
				must(t, err)
			}
			return
		}
		c.sync(t)
		for tag := range 3 {
			_, err := c.Recv(nil, long, 0, tag)
			must(t, err)
		}
	})
}

// Copies of unreceived messages have a limit; what is beyond it waits and is
// received all the same, in order.
func TestStoredMessagesAreLimited(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		const n = storedMax/copyMax + 10
		if c.rank == 0 {
			waiting := 0
			var rs []*backend.Request
			for i := range n {
				rs = append(rs, c.isend(message(copyMax, 0, i), 1, 0, backend.Standard))
				if !rs[i].Ready() {
					waiting++
				}
			}
			if waiting != 10 {
				t.Errorf("%d sends wait, want 10", waiting)
			}
			c.sync(t)
			for _, r := range rs {
				_, err := c.wait(t, r)
				must(t, err)
			}
			return
		}
		c.sync(t)
		buf := make([]byte, copyMax)
		for i := range n {
			if _, err := c.Recv(nil, buf, 0, 0); err != nil || !bytes.Equal(buf, message(copyMax, 0, i)) {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if s := c.me.stored; s != 0 {
			t.Errorf("%d bytes are still counted as stored", s)
		}
	})
}

// AnySource receives messages in the order in which they arrived.
func TestAnySourceIsFair(t *testing.T) {
	const n, each = 5, 40
	ranks(t, n, func(t testing.TB, c *Comm) {
		if c.rank > 0 {
			for i := range each {
				must(t, c.Send(nil, []byte{byte(i)}, 0, 0, backend.Standard))
			}
			c.sync(t)
			return
		}
		c.sync(t)
		arrived := c.arrivedSources()
		var next [n]byte
		for i, want := range arrived {
			var b [1]byte
			st, err := c.Recv(nil, b[:], backend.AnySource, backend.AnyTag)
			if err != nil || st.Source != want || b[0] != next[st.Source] {
				t.Errorf("receive %d: message %d of rank %d, want %d of %d (%v)", i, b[0], st.Source, next[want], want, err)
			}
			next[st.Source]++
		}
		if len(arrived) != (n-1)*each {
			t.Errorf("%d messages, want %d", len(arrived), (n-1)*each)
		}
	})
}

func TestCancelOfUnmatchedOperations(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		var b [1]byte
		if c.rank == 1 {
			r := c.irecv(b[:], 0, 0)
			if !c.Cancel(r) || !r.Ready() || !errors.Is(r.Err, backend.ErrCanceled) {
				t.Errorf("a receive without a message: %v", r.Err)
			}
			if c.Cancel(r) {
				t.Error("a complete request was canceled")
			}
			c.sync(t)
			c.sync(t)
			// Only what was not canceled is there.
			if st, err := c.Recv(nil, b[:], 0, backend.AnyTag); err != nil || st.Tag != 2 {
				t.Errorf("got %+v, %v", st, err)
			}
			return
		}
		c.sync(t)
		r1 := c.isend([]byte{1}, 1, 1, backend.Synchronous)
		r2 := c.isend([]byte{2}, 1, 2, backend.Synchronous)
		if !c.Cancel(r1) || !errors.Is(r1.Err, backend.ErrCanceled) {
			t.Errorf("a send without a receive: %v", r1.Err)
		}
		c.sync(t)
		if _, err := c.wait(t, r2); err != nil || c.Cancel(r2) {
			t.Errorf("the other send: %v", err)
		}
	})
}

// A request that is complete, but whose Notify has not been called yet, cannot be
// canceled, and is notified once.
func TestCompleteRequestCannotBeCanceled(t *testing.T) {
	ranks(t, 1, func(t testing.TB, c *Comm) {
		notified := 0
		var inner backend.Request
		inner.Notify = func(*backend.Request) { notified++ }
		outer := backend.Request{Notify: func(*backend.Request) {
			inner.Begin()
			c.Isend(&inner, []byte{1}, 0, 0, backend.Standard)
			if inner.Ready() {
				t.Error("notified inside another Notify")
			}
			if c.Cancel(&inner) {
				t.Error("a message that was sent has been canceled")
			}
		}}
		outer.Begin()
		c.Isend(&outer, []byte{2}, 0, 0, backend.Standard)
		if !inner.Ready() || inner.Err != nil || notified != 1 {
			t.Errorf("ready %v, notified %d times, %v", inner.Ready(), notified, inner.Err)
		}
	})
}

// A limited wait ends with what was missing, and the communicator stays usable.
func TestDeadlineOfPointToPointNamesThePeer(t *testing.T) {
	canceled, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("no more"))
	past, stop := context.WithDeadline(context.Background(), time.Now())
	defer stop()
	ranks(t, 3, func(t testing.TB, c *Comm) {
		if c.rank == 1 {
			short := &backend.Bound{Timeout: time.Millisecond}
			var b [1]byte
			check := func(what string, err, sentinel error, words ...string) {
				if !errors.Is(err, sentinel) {
					t.Errorf("%s: %v, want %v", what, err, sentinel)
					return
				}
				for _, w := range words {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%s: %q does not say %q", what, err, w)
					}
				}
			}
			_, err := c.Recv(short, b[:], 2, 9)
			check("recv", err, backend.ErrTimeout, "rank 2", "tag 9")
			_, err = c.Recv(&backend.Bound{Ctx: canceled}, b[:], backend.AnySource, 9)
			check("recv", err, backend.ErrCanceled, "no more", "no rank has sent")
			_, err = c.Recv(&backend.Bound{Ctx: past}, b[:], 0, backend.AnyTag)
			check("recv", err, backend.ErrTimeout, "rank 0")
			err = c.Send(short, b[:], 0, 9, backend.Synchronous)
			check("send", err, backend.ErrTimeout, "rank 0", "tag 9")
			_, _, err = c.Probe(short, 2, 9, true)
			check("probe", err, backend.ErrTimeout, "rank 2", "tag 9")
			r := c.irecv(b[:], 0, 1)
			check("await", c.Await(short, r), backend.ErrTimeout)
			if r.Ready() {
				t.Error("the request must still be pending")
			}
			c.sync(t)
			if _, err := c.wait(t, r); err != nil || b[0] != 1 {
				t.Errorf("after all that: got %d, %v", b[0], err)
			}
			return
		}
		c.sync(t)
		if c.rank == 0 {
			must(t, c.Send(nil, []byte{1}, 1, 1, backend.Standard))
		}
	})
}

// Requests driven by their Notify alone must not make the stack deeper with
// every step.
func TestNotifyDoesNotNest(t *testing.T) {
	const steps = 20_000
	comms := New(2)
	var deepest int
	var mu sync.Mutex
	finished := new(backend.Request)
	finished.Begin()
	left := steps
	var chain [2]func(*backend.Request)
	var bufs [2][1]byte
	var reqs [2]backend.Request
	for i := range 2 {
		chain[i] = func(r *backend.Request) {
			if r.Err != nil {
				return // the job is closed
			}
			var pcs [512]uintptr
			depth := runtime.Callers(0, pcs[:])
			mu.Lock()
			deepest = max(deepest, depth)
			left--
			end := left == 0
			mu.Unlock()
			if end {
				finished.Finish(backend.Status{}, nil)
				return
			}
			// Post the next receive and send to the other, which does the same.
			reqs[i].Begin()
			c := comms[i].(*Comm)
			c.Irecv(&reqs[i], bufs[i][:], 1-i, 0)
			must(t, c.Send(nil, []byte{1}, 1-i, 0, backend.Standard))
		}
		reqs[i].Notify = chain[i]
	}
	reqs[1].Begin()
	comms[1].Irecv(&reqs[1], bufs[1][:], 0, 0)
	reqs[0].Begin()
	comms[0].Irecv(&reqs[0], bufs[0][:], 1, 0)
	must(t, comms[0].Send(nil, []byte{1}, 1, 0, backend.Standard))
	for _, c := range comms {
		must(t, c.Await(nil, finished))
	}
	if deepest > 100 {
		t.Errorf("a stack of %d frames after %d steps", deepest, steps)
	}
	for _, c := range comms {
		c.Close()
	}
}

// Many goroutines of every rank send and receive at once.
func TestManyGoroutinesSendAndReceive(t *testing.T) {
	const n, threads, count = 3, 4, 200
	ranks(t, n, func(t testing.TB, c *Comm) {
		var wg sync.WaitGroup
		for tag := range threads {
			wg.Go(func() {
				for i := range count {
					size := lengths[(i+tag)%7]
					to, from := (c.rank+1+i%2)%n, (c.rank+2-i%2)%n
					r := c.isend(message(size, c.rank, i), to, tag, backend.Mode(i%2))
					buf := make([]byte, size)
					if _, err := c.Recv(nil, buf, from, tag); err != nil || !bytes.Equal(buf, message(size, from, i)) {
						t.Errorf("message %d with tag %d of rank %d: %v", i, tag, from, err)
					}
					_, err := c.wait(t, r)
					must(t, err)
				}
			})
		}
		wg.Wait()
	})
}

// Messages of different communicators of the same ranks do not match each other.
func TestCommunicatorsDoNotMixMessages(t *testing.T) {
	ranks(t, 4, func(t testing.TB, c *Comm) {
		all, err := c.Derive([]int{3, 2, 1, 0}, 1)
		must(t, err)
		half, err := c.Derive([]int{c.rank &^ 1, c.rank | 1}, 2)
		must(t, err)
		if all.Rank() != 3-c.rank || half.Size() != 2 || half.Rank() != c.rank&1 || all.WorldRank(0) != 3 {
			t.Errorf("rank %d: %d of all, %d of %d of half", c.rank, all.Rank(), half.Rank(), half.Size())
		}
		peer := c.rank ^ 1
		for i, d := range []*Comm{c, all.(*Comm), half.(*Comm)} {
			to := peer
			switch i {
			case 1:
				to = 3 - peer
			case 2:
				to = peer & 1
			}
			must(t, d.Send(nil, fmt.Appendf(nil, "comm %d", i), to, 0, backend.Standard))
		}
		for i, d := range []*Comm{half.(*Comm), all.(*Comm), c} {
			buf := make([]byte, 6)
			st, err := d.Recv(nil, buf, backend.AnySource, backend.AnyTag)
			if err != nil || string(buf) != fmt.Sprintf("comm %d", 2-i) || d.WorldRank(st.Source) != peer {
				t.Errorf("got %q from %d, %v", buf, st.Source, err)
			}
		}
		must(t, half.Close())
		must(t, half.Close())
	})
}

// arrivedSources returns the sources of the messages that wait, in order.
func (c *Comm) arrivedSources() []int {
	c.me.mu.Lock()
	defer c.me.mu.Unlock()
	var list []int
	c.me.arrived.Each(func(n *match.Node) bool {
		list = append(list, int(n.Env.Source))
		return true
	})
	return list
}
