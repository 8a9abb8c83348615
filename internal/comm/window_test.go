package comm

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
)

// pair is an element of 16 bytes, whose updates take a lock.
var pair = &backend.Datatype{Kind: backend.Complex128, Size: 16, Name: "complex128"}

func shortenQuiesce(t *testing.T) {
	whole := QuiesceFor
	QuiesceFor = 100 * time.Millisecond
	t.Cleanup(func() { QuiesceFor = whole })
}

func put(w *Window, elem []byte) error {
	return w.Do("put", Access{Kind: flight.Put, Rank: w.s.core.rank, In: elem})
}

// newWindow makes a window of n elements on this rank.
func newWindow(c *Comm, n int) (*Window, error) {
	return c.NewWindow(NewAllocation("NewWindow", pair, n, Anywhere, nil))
}

// holdElement is in the middle of an update of a part's first element until release is called, as a rank that is stopped.
func holdElement(p *window.Part) (release func()) {
	inside, over, out := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		_ = p.Reduce(func(dst, a, b []byte) {
			copy(dst, a)
			close(inside)
			<-over
		}, 16, 0, make([]byte, 16), nil, nil)
		close(out)
	}()
	<-inside
	return func() {
		close(over)
		<-out
	}
}

func accumulate(w *Window, rank int) error {
	return w.Do("accumulate", Access{Kind: flight.Accumulate, Op: datatype.Op(backend.OpSum, datatype.Number(backend.Complex128)), Rank: rank, In: make([]byte, 16)})
}

// apart is a communicator each of whose ranks is on a node of its own. It learns of a loss by a probe, and notes when
// the operations with a limit of up to an hour have begun.
type apart struct {
	backend.Comm
	*observed
}

type observed struct {
	lost   atomic.Bool
	unsent error  // what Send returns, if it sends nothing
	in     string // Caps.Library
	mu     sync.Mutex
	begun  []time.Time
}

func (a apart) NodeOf(rank int) int { return a.WorldRank(rank) }

func (a apart) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := a.Comm.Derive(b, members, id)
	return apart{c, a.observed}, err
}

func (a apart) Caps() backend.Caps {
	caps := a.Comm.Caps()
	caps.Library = a.in
	return caps
}

func (a apart) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	if a.lost.Load() {
		return backend.Status{}, false, fault(backend.ErrPeerLost, "rank 7 is lost")
	}
	return a.Comm.Probe(b, source, tag, block)
}

func (a apart) note(b *backend.Bound) {
	if b != nil && b.Timeout > time.Minute {
		a.mu.Lock()
		a.begun = append(a.begun, b.Since)
		a.mu.Unlock()
	}
}

func (a apart) Await(b *backend.Bound, p backend.Pending) error {
	a.note(b)
	return a.Comm.Await(b, p)
}

func (a apart) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	a.note(b)
	if a.unsent != nil {
		return a.unsent
	}
	return a.Comm.Send(b, buf, dest, tag, mode)
}

func (a apart) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	a.note(b)
	return a.Comm.Recv(b, buf, source, tag)
}

// apartRanks runs two ranks on two nodes, with a window of n elements.
func apartRanks(t *testing.T, n int, body func(w *Comm, win *Window, o *observed) error) {
	t.Helper()
	seen := make([]observed, 2)
	wrap := func(bc backend.Comm) backend.Comm { return apart{bc, &seen[bc.Rank()]} }
	ranksOn(t, 2, Options{Timeout: time.Hour, Schedules: true}, wrap, func(w *Comm) error {
		o := &seen[w.Rank()]
		win, err := newWindow(w, n)
		o.oneLimit(t, "newwindow")
		if err != nil {
			return err
		}
		return body(w, win, o)
	})
}

// oneLimit checks that all steps that were noted belong to one operation.
func (o *observed) oneLimit(t *testing.T, op string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.begun {
		if at != o.begun[0] || at.IsZero() {
			t.Errorf("%s: steps of one operation have begun at %v", op, o.begun)
			break
		}
	}
	o.begun = nil
}

// An update from another node waits for the update of a rank that is stopped. The target's other operations go on. If
// that rank is lost, the window fails with an error that names it.
func TestServerGoesOnBehindStoppedRank(t *testing.T) {
	for _, lost := range []bool{false, true} {
		apartRanks(t, 1, func(w *Comm, win *Window, o *observed) error {
			release := func() {}
			if w.Rank() == 1 {
				release = holdElement(&win.s.parts[1])
			}
			must.OK(barrier(w))
			if w.Rank() == 0 {
				must.OK(accumulate(win, 1))
			}
			err := barrier(w) // rank 0 or rank 1 makes the progress
			if w.Rank() == 1 && lost {
				o.lost.Store(true)
				for win.s.failure() == nil {
					runtime.Gosched()
				}
				o.lost.Store(false)
				if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), "rank 7") {
					t.Errorf("after the loss: %v, want ErrPeerLost naming rank 7", err)
				}
			}
			release()
			if err = errors.Join(err, barrier(w)); lost || err != nil {
				return err
			}
			return errors.Join(win.Fence(), win.Close())
		})
	}
}

// The goroutine that makes progress carries out an update of one long element itself, unless another rank is in an
// update of the element.
func TestServerUpdatesLongElementInPlace(t *testing.T) {
	for _, c := range []struct {
		elems int
		held  bool
		want  error
	}{{1, false, nil}, {1, true, errWaits}, {2, false, errWaits}} {
		lay, _ := window.Apart([]int{32}, 64)
		s := &windowCore{core: new(core), elem: pair, parts: lay.Parts(view.Bytes(make([]uint64, lay.Total/8)))}
		part, release := &s.parts[0], func() {}
		if c.held {
			release = holdElement(part)
		}
		view.Of[windowRequest](s.server.buf[:])[0] = windowRequest{kind: requestAccumulate, op: backend.OpSum}
		in := view.Of[complex128](s.server.buf[requestSize : requestSize+16*c.elems])
		in[0] = 2 + 1i
		err := s.carryOut(backend.Status{Bytes: requestSize + 16*c.elems}, false)
		release()
		if has := view.Of[complex128](part.Bytes(0, 16))[0]; err != c.want || (has == 2+1i) != (err == nil) {
			t.Errorf("%d elements, held: %v: %v, want %v; the element is %v", c.elems, c.held, err, c.want, has)
		}
	}
}

// endless is a communicator on which a request has always arrived, until it is stopped.
type endless struct {
	backend.Comm
	stopped atomic.Bool
}

func (e *endless) Irecv(r *backend.Request, buf []byte, _, _ int) {
	if !e.stopped.Load() {
		view.Of[windowRequest](buf)[0] = windowRequest{kind: requestPut}
		r.Complete(backend.Status{Bytes: requestSize}, nil)
	}
}

// Requests of other ranks arrive without end. The goroutine in which the first one is served comes back from it.
func TestServerReturnsToTheProgram(t *testing.T) {
	lay, _ := window.Apart([]int{16}, 64)
	e := new(endless)
	s := &windowCore{core: new(core), elem: pair, remote: &Comm{core: &core{bc: e}}, parts: lay.Parts(view.Bytes(make([]uint64, lay.Total/8)))}
	back := make(chan struct{})
	go func() {
		s.serve()
		close(back)
	}()
	select {
	case <-back:
	case <-time.After(10 * time.Second):
		t.Error("it has served requests for 10 s")
	}
	e.stopped.Store(true)
	<-back
	for s.server.arrived.Load() > 0 {
		runtime.Gosched()
	}
}

// A server that waits for the lock of an element goes on when the communicator that its window is for is broken, so
// that the origin has its answer.
func TestServerGoesOnWhenCommunicatorBreaks(t *testing.T) {
	flushed := make(chan struct{})
	apartRanks(t, 1, func(w *Comm, win *Window, o *observed) error {
		if w.Rank() == 1 {
			defer close(flushed)
			err := errors.Join(barrier(w), accumulate(win, 0))
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return errors.Join(err, win.WithContext(ctx).Flush(0))
		}
		release := holdElement(&win.s.parts[0])
		err := barrier(w)
		w.core.bc.Break(fault(backend.ErrTimeout, "a receive was given up"))
		inside.Wait("window.(*Part).stripe") // the server
		release()
		<-flushed
		return err
	})
}

// After an operation has told that a rank is lost, none of the window succeeds.
func TestNoAccessSucceedsAfterOneHasToldALoss(t *testing.T) {
	apartRanks(t, 1, func(w *Comm, win *Window, o *observed) error {
		if w.Rank() == 0 {
			release := holdElement(&win.s.parts[0])
			o.lost.Store(true)
			if err := accumulate(win, 0); !errors.Is(err, backend.ErrPeerLost) {
				t.Errorf("an update behind a rank that is lost: %v, want ErrPeerLost", err)
			}
			o.lost.Store(false)
			release()
			if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrPeerLost) {
				t.Errorf("an access after it: %v, want ErrPeerLost", err)
			}
		}
		return barrier(w)
	})
}

// A request that is not sent leaves the tag of its answer to the next one.
func TestUnsentRequestTakesNoTag(t *testing.T) {
	apartRanks(t, 1, func(w *Comm, win *Window, o *observed) error {
		if w.Rank() == 0 {
			get := func() error { return win.Do("get", Access{Kind: flight.Get, Rank: 1, Out: make([]byte, 16)}) }
			o.unsent = fault(backend.ErrTimeout, "no room")
			for range 3 {
				if err := get(); !errors.Is(err, backend.ErrTimeout) {
					t.Errorf("%v, want ErrTimeout", err)
				}
			}
			o.unsent = nil
			if err := get(); err != nil || win.s.lastTag != 1 {
				t.Errorf("%v after %d tags, want 1", err, win.s.lastTag)
			}
		}
		return barrier(w)
	})
}

// Test returns at the deadline of an Rput that does not end, and the window's operations end.
func TestRputThatDoesNotEndIsGivenUp(t *testing.T) {
	shortenQuiesce(t)
	ranks(t, 1, func(w *Comm) error {
		win := must.Get(newWindow(w, 1))
		must.OK(win.enter(0))
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		p := w.WithContext(ctx).newPending("rput", flight.Put, pair, 16, 0, Undefined)
		p.op = win.s.spawn(func() error {
			<-release
			return nil
		})
		win.s.leave()
		q := p.started()
		cancel()
		if _, done, err := q.Test(); !done || !errors.Is(err, backend.ErrCanceled) {
			t.Errorf("Test: %v, %v, want ErrCanceled", done, err)
		}
		if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrCanceled) {
			t.Errorf("Put after it: %v, want ErrCanceled", err)
		}
		close(release)
		return nil
	})
}

// jam is apart where requests find no room in the links for a while, because the peer is stopped. They are sent when it
// goes on, unless the communicator is closed before.
type jam struct {
	apart
	full  *atomic.Bool
	stuck *[]func(closed bool)
}

func (j jam) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := j.apart.Derive(b, members, id)
	if err != nil {
		return nil, err
	}
	return jam{c.(apart), j.full, j.stuck}, nil
}

func (j jam) Isend(r *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if tag != requestTag || !j.full.Load() {
		j.apart.Isend(r, buf, dest, tag, mode)
		return
	}
	*j.stuck = append(*j.stuck, func(closed bool) {
		if closed {
			r.Complete(backend.Status{}, errClosed)
		} else {
			j.apart.Isend(r, buf, dest, tag, mode)
		}
	})
}

func (j jam) Close() error {
	if j.full.Swap(false) {
		(*j.stuck)[0](true)
	}
	return j.apart.Close()
}

// A rank unlocks the part of one that is stopped, and does not wait. The lock is free when the other one goes on, also if
// the rank has closed the communicator before the request went out.
func TestUnlockDoesNotWaitForStoppedRank(t *testing.T) {
	for _, closes := range []bool{false, true} {
		var full atomic.Bool
		var stuck []func(bool)
		wrap := func(bc backend.Comm) backend.Comm { return jam{apart{bc, new(observed)}, &full, &stuck} }
		ranksOn(t, 2, Options{Schedules: true}, wrap, func(w *Comm) error {
			d, win, err := dupWindow(w)
			if err != nil {
				return err
			}
			if w.Rank() == 1 {
				err = errors.Join(barrier(w), barrier(w))
				if s := win.s.parts[1].LockState(); s != 0 {
					t.Errorf("closes: %v: %v", closes, s)
				}
				return errors.Join(err, barrier(w))
			}
			g, err := win.Lock(window.Exclusive, 1)
			must.OK(errors.Join(err, barrier(w)))
			full.Store(true)
			if closes {
				err = d.Close()
			} else {
				err = g.Unlock()
				full.Store(false)
				stuck[0](false) // the other rank carries it out at once
			}
			return errors.Join(err, barrier(w), barrier(w))
		})
	}
}
