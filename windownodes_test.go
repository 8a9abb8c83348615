package cohort

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// spread is a local backend whose ranks are on nodes of per ranks each. It shares no
// memory.
type spread struct {
	backend.Comm
	per int
}

func (a *spread) NodeOf(rank int) int { return a.WorldRank(rank) / a.per }

func (a *spread) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := a.Comm.Derive(b, members, id)
	return &spread{c, a.per}, err
}

// nodes is spread with shared memory on each node.
type nodes struct{ spread }

func (s *nodes) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := s.Comm.Derive(b, members, id)
	return &nodes{spread{c, s.per}}, err
}

func (s *nodes) Share(b *backend.Bound, size int, tell backend.Publish) (backend.Memory, error) {
	for r := range s.Size() {
		if s.NodeOf(r) != s.NodeOf(0) {
			return nil, fmt.Errorf("%w: Share of several nodes", ErrInternal)
		}
	}
	return s.Comm.(backend.Sharing).Share(b, size, tell)
}

func (s *nodes) Available() (int64, string) { return 1 << 30, "the test's limit" }

// Every node of two ranks, or of one rank that shares no memory, has regions and windows of its own.
func TestWindowsAcrossNodes(t *testing.T) {
	for _, c := range []struct {
		name string
		per  int // ranks of a node
		wrap func(bc backend.Comm) backend.Comm
	}{
		{"two nodes", 2, func(bc backend.Comm) backend.Comm { return &nodes{spread{bc, 2}} }},
		{"no shared memory", 1, func(bc backend.Comm) backend.Comm { return &spread{bc, 1} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			onWorlds(t, 4, settings{}, c.wrap, func(w *Comm) error {
				must.OK(leaders(w, c.per))
				must.OK(spanning(w))
				node, err := w.SplitShared()
				if err != nil || node.Size() != c.per || node.Rank() != w.Rank()%c.per {
					return fmt.Errorf("SplitShared: rank %d of %d, %v", node.Rank(), node.Size(), err)
				}
				win := must.Get(AllocateShared[int](node, 1))
				mine := must.Get(win.Local())
				mine[0] = w.Rank()
				must.OK(win.Fence())
				for r := range node.Size() {
					if p, err := win.Remote(r); err != nil || p[0] != w.Rank()/c.per*c.per+r {
						return fmt.Errorf("rank %d of the node has %v, %v", r, p, err)
					}
				}
				return errors.Join(win.Fence(), win.Close(), node.Close())
			})
		})
	}
}

// leaders checks that each node has a copy of its own and a leader who writes it.
func leaders(w *Comm, per int) error {
	r, err := NewSharedRegion[int](w, 3)
	if err != nil {
		return err
	}
	if r.Node().Size() != per || r.IsLeader() != (w.Rank()%per == 0) {
		return fmt.Errorf("rank %d of %d, leader %v", r.Node().Rank(), r.Node().Size(), r.IsLeader())
	}
	all, err := r.MutSlice()
	if err != nil {
		return err
	}
	for i := range all {
		all[i] = w.Rank()
	}
	if err := r.Fence(); err != nil {
		return err
	}
	if all, err = r.Slice(); err != nil {
		return err
	}
	for i, x := range all {
		if x != w.Rank()/per*per {
			return fmt.Errorf("element %d is rank %d's, want that of the leader of rank %d", i, x, w.Rank())
		}
	}
	return errors.Join(r.Fence(), r.Close())
}

// spanning makes windows of several nodes, and regions that do not fit on one: an
// error on every rank, after which everything goes on.
func spanning(w *Comm) error {
	win, err := AllocateShared[int](w, 5)
	if !errors.Is(err, ErrComm) || win != nil || !strings.Contains(err.Error(), "SplitShared") {
		return fmt.Errorf("a window of several nodes: %v", err)
	}
	if _, err := AllocateShared[int](w, math.MaxInt/8); !errors.Is(err, ErrComm) {
		return fmt.Errorf("a huge window of several nodes: %v", err)
	}
	if _, ok := w.base().Backend().(backend.Sharing); ok {
		_, err := NewSharedRegion[byte](w, 1<<30)
		if !errors.Is(err, ErrAlloc) || !strings.Contains(err.Error(), "1.0 GiB") || !strings.Contains(err.Error(), "the test's limit") {
			return fmt.Errorf("a region that no node has room for: %v", err)
		}
	}
	return w.Barrier()
}

// unequal is nodes of which the second one has no memory left.
type unequal struct {
	nodes
	open *atomic.Int32 // derived communicators
}

func (u *unequal) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := u.Comm.Derive(b, members, id)
	u.open.Add(1)
	return &unequal{nodes{spread{c, u.per}}, u.open}, err
}

func (u *unequal) Close() error {
	u.open.Add(-1)
	return u.Comm.Close()
}

func (u *unequal) Available() (int64, string) {
	if u.NodeOf(u.Rank()) == 1 {
		return 100, "the second node's limit"
	}
	return -1, ""
}

// A region, or a window, is made on all nodes or on none, and all ranks get the reason.
func TestFailureOnOneNodeFailsAll(t *testing.T) {
	wrap := func(bc backend.Comm) backend.Comm { return &unequal{nodes{spread{bc, 2}}, new(atomic.Int32)} }
	onWorlds(t, 4, settings{}, wrap, func(w *Comm) error {
		for what, err := range map[string]error{"region": second(NewSharedRegion[int](w, 1000)), "window": second(NewWindow[int](w, 1000))} {
			if !errors.Is(err, ErrAlloc) || !strings.Contains(err.Error(), "the second node's limit") || what == "region" && !strings.Contains(err.Error(), "KiB") {
				return fmt.Errorf("%s: %v", what, err)
			}
			if open := w.base().Backend().(*unequal).open.Load(); open != 0 {
				return fmt.Errorf("%d communicators are open after a %s has failed", open, what)
			}
		}
		return w.Barrier()
	})
}

// Operations of a handle end with its context. Those of the window continue.
func TestWindowHandleEndsWithItsContext(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		w, err := AllocateShared[int](c, 1)
		if err != nil {
			return err
		}
		var g *LockGuard
		if c.Rank() == 0 {
			if g, err = w.Lock(LockExclusive, 1); err != nil {
				return err
			}
		}
		must.OK(c.Barrier())
		if c.Rank() == 1 {
			ctx, cancel := expiredContext()
			defer cancel()
			if _, err := w.WithContext(ctx).Lock(LockShared, 1); !errors.Is(err, ErrTimeout) {
				return fmt.Errorf("Lock with an expired context: %v", err)
			}
		}
		must.OK(c.Barrier())
		if c.Rank() == 0 {
			must.OK(g.Unlock())
		}
		if g, err = w.Lock(LockShared, 1); err != nil {
			return err
		}
		must.OK(g.Unlock())
		ctx, cancel := expiredContext()
		defer cancel()
		must.OK(w.WithContext(ctx).Close())
		if err := w.Sync(); !errors.Is(err, ErrClosed) {
			return fmt.Errorf("Sync after Close of a handle: %v", err)
		}
		return nil
	})
}

// A rank may use a window for as long as it has not closed it, also after the others have closed it and left.
func TestWindowServesLastRank(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		w, err := AllocateShared[int](c, 1)
		if err != nil || c.Rank() == 0 {
			return errors.Join(err, w.Close())
		}
		if _, err := Recv(c, []int{0}, 0, 1); !errors.Is(err, ErrPeerLost) {
			return fmt.Errorf("Recv from a rank that leaves: %v", err)
		}
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); { // the window looks for losses meanwhile
			g, err := w.Lock(LockExclusive, 0)
			if err = errors.Join(err, g.Unlock()); err != nil {
				return err
			}
		}
		return w.Close()
	})
}

func expiredContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), -1)
}

// gated is spread whose rank 1 can be kept from serving requests of one-sided windows, and that counts those sent.
type gated struct {
	spread
	gate *gate
}

type gate struct {
	sent   atomic.Int32
	before func() // called by rank 0 before it sends a request

	mu     sync.Mutex
	closed bool
	notify func(*backend.Request) // of the receive of requests
	held   *backend.Request       // that has completed while the gate was closed
}

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
}

func (g *gate) open() {
	g.mu.Lock()
	g.closed = false
	held := g.held
	g.held = nil
	g.mu.Unlock()
	if held != nil {
		g.notify(held)
	}
}

func (a *gated) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := a.Comm.Derive(b, members, id)
	return &gated{spread{c, a.per}, a.gate}, err
}

func (a *gated) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	if tag == 0 && a.Rank() == 0 && a.gate.before != nil {
		a.gate.before()
	}
	err := a.Comm.Send(b, buf, dest, tag, mode)
	if tag == 0 {
		a.gate.sent.Add(1)
	}
	return err
}

func (a *gated) Irecv(r *backend.Request, buf []byte, source, tag int) {
	if g := a.gate; a.Rank() == 1 && tag == 0 && g.notify == nil {
		g.notify = r.Notify
		r.Notify = func(r *backend.Request) {
			g.mu.Lock()
			if g.closed {
				g.held = r
			}
			held := g.closed
			g.mu.Unlock()
			if !held {
				g.notify(r)
			}
		}
	}
	a.Comm.Irecv(r, buf, source, tag)
}

// gatedWindow runs body on two ranks of different nodes, with a window of which rank 1 serves its part through g.
func gatedWindow(t *testing.T, g *gate, body func(c *Comm, w *Window[int]) error) {
	t.Helper()
	wrap := func(bc backend.Comm) backend.Comm { return &gated{spread{bc, 1}, g} }
	onWorlds(t, 2, settings{}, wrap, func(c *Comm) error {
		w, err := NewWindow[int](c, 1)
		if err == nil {
			err = body(c, w)
		}
		if err != nil {
			return err
		}
		return errors.Join(w.Fence(), w.Close())
	})
}

// Two goroutines flush the same requests. Flush waits for later requests nevertheless.
func TestFlushWaitsAfterTwoAtOnce(t *testing.T) {
	g := new(gate)
	gatedWindow(t, g, func(c *Comm, w *Window[int]) error {
		if c.Rank() == 1 {
			return nil
		}
		const puts = 10
		put := func() (err error) {
			g.close()
			for range puts {
				err = errors.Join(err, w.Put([]int{1}, 1, 0))
			}
			return err
		}
		must.OK(put())
		flushed := make(chan error, 2)
		for range cap(flushed) {
			go func() { flushed <- w.Flush(1) }()
		}
		for g.sent.Load() < puts+2 {
			runtime.Gosched()
		}
		g.open()
		must.OK(errors.Join(<-flushed, <-flushed, put()))
		ctx, cancel := expiredContext()
		defer cancel()
		if err := w.WithContext(ctx).Flush(1); !errors.Is(err, ErrTimeout) {
			return fmt.Errorf("Flush of requests that rank 1 has not served returns %v, want %v", err, ErrTimeout)
		}
		g.open()
		return nil
	})
}

// Lock of the part of a rank that does not answer says so.
func TestLockNamesRankThatDoesNotAnswer(t *testing.T) {
	g := new(gate)
	gatedWindow(t, g, func(c *Comm, w *Window[int]) error {
		if c.Rank() == 1 {
			return nil
		}
		g.close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := w.WithContext(ctx).Lock(LockExclusive, 1)
		if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "rank 1's part: that rank has not answered") {
			return fmt.Errorf("Lock returns %v", err)
		}
		g.open()
		return nil
	})
}

// A rank asks to wait for an exclusive lock, and its deadline passes before the target hears of it. Others can share the
// lock nevertheless.
func TestLockThatTimedOutDoesNotExcludeOthers(t *testing.T) {
	g := new(gate)
	var asked atomic.Int32
	g.before = func() {
		if asked.Add(1) == 2 { // it has tried, and asks to wait
			g.close()
		}
	}
	gatedWindow(t, g, func(c *Comm, w *Window[int]) error {
		if c.Rank() == 1 {
			held, err := w.Lock(LockExclusive, 1)
			return errors.Join(err, c.Barrier(), c.Barrier(), held.Unlock())
		}
		must.OK(c.Barrier())
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if _, err := w.WithContext(ctx).Lock(LockExclusive, 1); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "rank 1 holds it") {
			return fmt.Errorf("Lock returns %v, want %v naming rank 1", err, ErrTimeout)
		}
		g.open()
		err := c.Barrier()
		shared, e := w.Lock(LockShared, 1)
		return errors.Join(err, e, shared.Unlock())
	})
}
