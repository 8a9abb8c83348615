//go:build interleave && linux

package comm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

// post is the communicator of a window's server. A thread receives the answers.
type post struct {
	*alone
	mu      word.Mutex
	in      *backend.Request // the posted receive of requests
	buf     []byte
	queue   [][]byte           // messages that no receive has taken
	answers []answer           // under way
	lefts   []*backend.Request // the other posted receives, for which no messages come
	left    bool               // the other rank has closed the communicator
	ended   bool
	broken  word.Bool
}

type answer struct {
	req  *backend.Request
	data []byte
}

func (p *post) Break(error) { p.broken.Store(true) }

var errLeft = backend.PeerLeft("rank %d has closed this communicator", 1)

func (p *post) Irecv(r *backend.Request, buf []byte, source, _ int) {
	p.mu.Lock()
	st, err := backend.Status{Source: 1}, error(nil)
	switch {
	case p.ended:
		err = errClosed
	case source != backend.AnySource && p.left:
		err = errLeft
	case source != backend.AnySource:
		p.lefts, r = append(p.lefts, r), nil
	case len(p.queue) > 0:
		st.Bytes = copy(buf, p.queue[0])
		p.queue = p.queue[1:]
	default:
		p.in, p.buf, r = r, buf, nil
	}
	p.mu.Unlock()
	if r != nil {
		r.Complete(st, err)
	}
}

func (p *post) Isend(r *backend.Request, data []byte, _, _ int, _ backend.Mode) {
	p.mu.Lock()
	ended := p.ended
	if !ended {
		p.answers = append(p.answers, answer{r, data})
	}
	p.mu.Unlock()
	if ended {
		r.Complete(backend.Status{}, errClosed)
	}
}

func (p *post) Cancel(r *backend.Request) bool { // Close ends the receive of requests
	p.mu.Lock()
	i := slices.Index(p.lefts, r)
	if i >= 0 {
		p.lefts = slices.Delete(p.lefts, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		r.Complete(backend.Status{}, fault(backend.ErrCanceled, "canceled"))
	}
	return i >= 0
}

// leave closes the other rank's end.
func (p *post) leave() {
	p.mu.Lock()
	lefts := p.lefts
	p.lefts, p.left = nil, true
	p.mu.Unlock()
	for _, r := range lefts {
		r.Complete(backend.Status{}, errLeft)
	}
}

func (p *post) Close() error {
	p.mu.Lock()
	in, answers, lefts := p.in, p.answers, p.lefts
	p.in, p.answers, p.lefts, p.ended = nil, nil, nil, true
	p.mu.Unlock()
	if in != nil {
		lefts = append(lefts, in)
	}
	for _, r := range lefts {
		r.Complete(backend.Status{}, errClosed)
	}
	for _, a := range answers {
		a.req.Complete(backend.Status{}, errClosed)
	}
	return p.alone.Close()
}

// request delivers a request for an element or the lock.
func (p *post) request(h windowRequest, in []byte) {
	if !h.kind.forLock() {
		h.n = 16
	}
	m := append(append([]byte(nil), view.Bytes([]windowRequest{h})...), in...)
	p.mu.Lock()
	r := p.in
	if p.in = nil; r == nil {
		p.queue = append(p.queue, m)
	} else {
		copy(p.buf, m)
	}
	p.mu.Unlock()
	if r != nil {
		r.Complete(backend.Status{Source: 1, Bytes: len(m)}, nil)
	}
}

// receive takes n answers, unless the communicator is closed or broken before, and returns how many it has taken.
func (p *post) receive(n int) int {
	for got := 0; ; {
		p.mu.Lock()
		answers, ended := p.answers, p.ended
		p.answers = nil
		p.mu.Unlock()
		for _, a := range answers {
			word.Reads(a.data)
			a.req.Complete(backend.Status{}, nil)
			got++
		}
		if got == n || ended || p.broken.Load() {
			return got
		}
		word.Yield()
	}
}

// served returns a window that serves the ranks of another node, and the communicator of its server.
func served(d, w *Comm) (*Window, *post) {
	win := windowOf(d)
	s := win.s
	s.remote, s.node = child(w), child(w)
	s.near = s.node
	p := &post{alone: s.remote.core.bc.(*alone)}
	s.remote.core.bc = p
	s.messages.New = s.newMessage
	s.serve()
	return win, p
}

// The server carries out a request for an element that another rank of its node updates, and may die in the middle. It
// answers, or ends the window because of the loss.
func TestInterleaveServeBesideDeath(t *testing.T) {
	for deaths := range 2 {
		t.Run(fmt.Sprint(deaths), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 2, Deaths: deaths, Naps: deaths > 0}, func(x *interleave.Run) {
				bc := newAlone()
				bc.died = func() bool { return x.Dead("neighbor") }
				w := world(bc)
				win, p := served(child(w), w)
				x.GoMortal("neighbor", func() {
					sum := datatype.Op(backend.OpSum, datatype.Number(backend.Complex128))
					_ = win.s.parts[0].Reduce(sum.Apply, 16, 0, make([]byte, 16), nil, func() error { return nil })
				})
				x.Go("origin", func() { p.request(windowRequest{kind: requestCompareAndSwap, tag: 1}, make([]byte, 32)) })
				got := 0
				x.Go("receiver", func() { got = p.receive(1) })
				x.Check(func() error {
					if err := win.s.failure(); (got == 1) == (err != nil) || err != nil && (!errors.Is(err, errGone) || !p.broken.Load()) {
						return fmt.Errorf("%d answers, and the window ends with %v; its communicator is broken: %v", got, err, p.broken.Load())
					}
					return nil
				})
			})
		})
	}
}

// A goroutine closes the window while requests arrive and answers are sent: from its memory, or while another goroutine
// updates the same element in place. Nobody touches the memory afterwards.
func TestInterleaveServeDuringClose(t *testing.T) {
	patient(t)
	for _, kind := range []requestKind{requestGet, requestCompareAndSwap} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
				bc := newAlone()
				w := world(bc)
				d := child(w)
				win, p := served(d, w)
				x.Go("origin", func() {
					if kind == requestGet {
						p.request(windowRequest{kind: kind, tag: 1}, nil)
					} else {
						p.request(windowRequest{kind: kind, tag: 1}, make([]byte, 32))
					}
				})
				if kind == requestGet {
					x.Go("receiver", func() { p.receive(1) })
				} else {
					x.Go("user", func() {
						if err := accumulate(win, 0); !allowed(err) {
							x.Errorf("%v", err)
						}
					})
				}
				closes(x, d)
				x.Check(bc.onlyWorld)
			})
		})
	}
}

// Two ranks of other nodes update an element. A goroutine of the program carries out one request at most before it leaves
// the next one to the server's own. All requests are carried out, one after the other.
func TestInterleaveServeInTurns(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		w := world(newAlone())
		win, p := served(child(w), w)
		one := view.Bytes([]complex128{1})
		for i, n := range []int{2, 1} {
			x.Go(fmt.Sprint("origin ", i), func() {
				for range n {
					p.request(windowRequest{kind: requestAccumulate, op: backend.OpSum}, one)
				}
			})
		}
		x.Check(func() error {
			sum := view.Of[complex128](win.s.parts[0].Bytes(0, 16))[0]
			if err := win.s.failure(); sum != 3 || err != nil || win.s.server.arrived.Load() != 0 {
				return fmt.Errorf("the element is %v, want 3; %v; %d requests wait", sum, err, win.s.server.arrived.Load())
			}
			return nil
		})
	})
}

// All ranks of other nodes close the communicator, which ends the server's receive. The window goes on for this rank.
func TestInterleaveServeUntilOthersLeave(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		w := world(newAlone())
		win, p := served(child(w), w)
		x.Go("others", func() { p.in.Complete(backend.Status{}, backend.PeerLeft("rank %d has closed this communicator", 1)) })
		x.Go("user", func() {
			if err := put(win, pairOf(1)); err != nil {
				x.Errorf("%v", err)
			}
		})
		x.Check(func() error { return win.s.failure() })
	})
}

// The server waits for a lock for a rank of another node, which gives it up at any time, beside a rank that holds the lock
// and perhaps unlocks it. The rank has its answer, and not the lock.
func TestInterleaveServeLock(t *testing.T) {
	for _, unlocks := range []bool{true, false} {
		t.Run(fmt.Sprint(unlocks), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: interleave.Long(2)}, func(x *interleave.Run) {
				w := world(newAlone())
				win, p := served(child(w), w)
				part := &win.s.parts[0]
				part.TryLock(window.Exclusive, 1)
				want := part.LockState()
				if unlocks {
					want = 0
					x.Go("neighbor", func() { part.Unlock(window.Exclusive, 1) })
				}
				x.Go("origin", func() {
					p.request(windowRequest{kind: requestWaitLock, lock: window.Exclusive, ticket: 1, tag: 1}, nil)
					p.request(windowRequest{kind: requestUnlock, lock: window.Exclusive, ticket: 1}, nil)
				})
				got := 0
				x.Go("receiver", func() { got = p.receive(1) })
				x.Check(func() error {
					if s := part.LockState(); got != 1 || s != want || len(win.s.server.locks) != 0 {
						return fmt.Errorf("%d answers, the lock's state is %#x, and the server has %d locks", got, uint64(s), len(win.s.server.locks))
					}
					return nil
				})
			})
		})
	}
}

// A rank of another node has closed its end while its request for a lock, which another rank may hold, is carried out. The
// lock is free afterwards.
func TestInterleaveServeLockOfRankThatLeaves(t *testing.T) {
	for _, kind := range []requestKind{requestTryLock, requestWaitLock} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
				w := world(newAlone())
				win, p := served(child(w), w)
				part := &win.s.parts[0]
				if kind == requestWaitLock {
					part.TryLock(window.Exclusive, 1)
					x.Go("neighbor", func() { part.Unlock(window.Exclusive, 1) })
				}
				x.Go("origin", func() { p.request(windowRequest{kind: kind, lock: window.Exclusive, ticket: 1, tag: 1}, nil) })
				x.Go("notice", p.leave)
				x.Check(func() error {
					if s := part.LockState(); s != 0 || len(p.answers) != 1 {
						return fmt.Errorf("the lock's state is %#x; %d answers", uint64(s), len(p.answers))
					}
					return nil
				})
			})
		})
	}
}

// This rank closes the communicator while a rank of another node asks for the lock of its part, and has it perhaps. The
// lock is free for the other ranks of the node.
func TestInterleaveServeLockDuringClose(t *testing.T) {
	patient(t)
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		w := world(newAlone())
		d := child(w)
		win, p := served(d, w)
		x.Go("origin", func() { p.request(windowRequest{kind: requestTryLock, lock: window.Exclusive, ticket: 1, tag: 1}, nil) })
		closes(x, d)
		x.Check(func() error {
			if s := win.s.parts[0].LockState(); s != 0 {
				return fmt.Errorf("the lock is not free: %v", s)
			}
			return nil
		})
	})
}

// unmet is a communicator whose other rank does not come to a collective.
type unmet struct {
	*alone
	broken word.Bool
}

func (u *unmet) Break(error) { u.broken.Store(true) }

func (u *unmet) Collective(*backend.Bound, *backend.Call) (backend.Plan, error) {
	for !u.broken.Load() {
		word.Yield()
	}
	return backend.PlanDone, backend.ErrTimeout
}

// A window ends while a goroutine begins to wait in Fence for a rank that does not come. Fence ends with the same error.
func TestInterleaveFenceBesideEndOfWindow(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		d := child(world(newAlone()))
		win := windowOf(d)
		u := &unmet{alone: d.core.bc.(*alone)}
		d.core.bc, d.core.colls = u, u
		why := fault(backend.ErrInternal, "the window ends")
		x.Go("server", func() { win.s.giveUp(why) })
		x.Go("user", func() {
			if err := win.Fence(); !errors.Is(err, why) {
				x.Errorf("Fence: %v", err)
			}
		})
	})
}
