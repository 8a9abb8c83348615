package comm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

// lockHold is a lock that this rank holds or waits for, if ticket is not 0.
type lockHold struct {
	ticket uint64
	kind   window.Kind
	held   bool
}

// Guard is the lock that the calling rank holds on the parts of ranks lo to hi-1.
type Guard struct {
	w      *Window
	lo, hi int
	ticket uint64
}

var errNoLock = fault(backend.ErrWin, "the lock is nil")

// Lock waits until the calling rank holds the lock of a rank's part.
func (w *Window) Lock(kind window.Kind, rank int) (Guard, error) {
	g := Guard{w: w, lo: rank, hi: rank + 1}
	if rank == backend.ProcNull {
		g.hi = rank
	}
	return g.lock("lock", flight.Lock, kind, rank, w.enter(rank))
}

// LockAll waits until the calling rank holds a shared lock of every part.
func (w *Window) LockAll() (Guard, error) {
	g, err := Guard{w: w}, w.enter(backend.ProcNull)
	if err == nil {
		g.hi = len(w.s.parts)
	}
	return g.lock("lockall", flight.LockAll, window.Shared, Undefined, err)
}

// lock takes the locks. peer is the rank that an error names. err is the error of enter.
func (g Guard) lock(op string, f flight.Kind, kind window.Kind, peer int, err error) (Guard, error) {
	w := g.w
	if err != nil {
		return Guard{}, w.Failed(op, peer, err)
	}
	s := w.s
	defer s.leave()
	if kind != window.Shared && kind != window.Exclusive {
		err = fault(backend.ErrWin, "invalid lock kind %d; want LockShared or LockExclusive", uint8(kind))
	} else if err = g.claim(kind); err == nil {
		err = s.core.traced(s.core.numbered(f, peer, uint32(s.number)), func() error { return g.acquire(kind) })
		err = g.settle(kind, err)
	}
	if err != nil {
		return Guard{}, w.Failed(op, peer, err)
	}
	return g, nil
}

// claim notes that this rank waits for the locks.
func (g *Guard) claim(kind window.Kind) error {
	s := g.w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := g.lo; r < g.hi; r++ {
		if s.holds[r].ticket != 0 {
			return fault(backend.ErrWin, "this rank already holds the lock of rank %d's part, or waits for it", r)
		}
	}
	s.tickets++
	g.ticket = s.tickets
	for r := g.lo; r < g.hi; r++ {
		s.holds[r] = lockHold{g.ticket, kind, false}
	}
	return nil
}

// settle notes that this rank holds the locks, or that the wait has ended with an error. The goroutine that closes the
// window releases the locks that this rank holds; it may have come before.
func (g *Guard) settle(kind window.Kind, err error) error {
	s := g.w.s
	s.mu.Lock()
	late := err == nil && s.origin.IsShut()
	for r := g.lo; r < g.hi; r++ {
		if s.holds[r].held = err == nil && !late; !s.holds[r].held {
			s.holds[r] = lockHold{}
		}
	}
	s.mu.Unlock()
	if late {
		g.release(g.hi, kind)
		err = errNotOpen
	}
	return err
}

// acquire takes the locks, or none of them.
func (g *Guard) acquire(kind window.Kind) error {
	w := g.w
	if w.s.remote != nil {
		w = w.withDeadline()
	}
	x := w.waiter()
	for r := g.lo; r < g.hi; r++ {
		var err error
		if p := &w.s.parts[r]; !p.Here() {
			err = w.lockRemote(kind, r, g.ticket)
		} else if err = p.Lock(kind, w.s.core.rank, x.expired); err != nil {
			err = whileLocked(err, r, p.LockState().String())
		}
		if err != nil {
			g.release(r, kind)
			return err
		}
	}
	return nil
}

func whileLocked(err error, rank int, state string) error {
	return backend.While(err, fmt.Sprintf("the lock of rank %d's part: %s", rank, state))
}

// release releases the locks of the parts before hi.
func (g *Guard) release(hi int, kind window.Kind) {
	s := g.w.s
	for r := g.lo; r < hi; r++ {
		if p := &s.parts[r]; p.Here() {
			p.Unlock(kind, s.core.rank)
		} else {
			s.unlockRemote(kind, r, g.ticket)
		}
	}
}

// check enters an operation under the locks, on the part of a rank. release says that it releases them.
func (g *Guard) check(rank int, release bool) (kind window.Kind, err error) {
	if g.window() == nil {
		return 0, errNoLock
	}
	if err = g.w.enter(rank); err != nil {
		return 0, err
	}
	s := g.w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := g.lo; r < g.hi; r++ {
		if kind = s.holds[r].kind; g.ticket == 0 || s.holds[r].ticket != g.ticket {
			s.leave()
			return 0, fault(backend.ErrWin, "the lock has been released already")
		}
		if release {
			s.holds[r] = lockHold{}
		}
	}
	return kind, nil
}

// Flush completes this rank's accesses of the part of a rank.
func (g *Guard) Flush(rank int) error {
	_, err := g.check(rank, false)
	return g.window().flushes("flush", rank, err)
}

// FlushAll completes this rank's accesses.
func (g *Guard) FlushAll() error {
	_, err := g.check(backend.ProcNull, false)
	return g.window().flushes("flushall", Undefined, err)
}

func (g *Guard) window() *Window {
	if g == nil {
		return nil
	}
	return g.w
}

// Rank returns the rank whose part is locked, Undefined for all or none.
func (g *Guard) Rank() int {
	if g.window() == nil || g.hi-g.lo > 1 {
		return Undefined
	}
	return g.lo
}

// Unlock makes the calling rank's writes visible to the next holders and releases the locks.
func (g *Guard) Unlock() error {
	kind, err := g.check(backend.ProcNull, true)
	if err == nil {
		g.release(g.hi, kind)
		g.w.s.leave()
	}
	return g.window().Failed("unlock", g.Rank(), err)
}

// unlockAll releases the locks that this rank holds, with an error that names one. After a loss, also of this rank,
// they stay taken: what they guard may be half done.
func (s *windowCore) unlockAll() (err error) {
	if lost := cmp.Or(s.failure(), (&until{bc: s.core.bc}).err()); isLoss(lost) {
		return nil
	}
	for r := range s.holds {
		s.mu.Lock()
		h := s.holds[r]
		if h.held {
			s.holds[r] = lockHold{}
		}
		s.mu.Unlock()
		if h.held {
			(&Guard{w: &Window{s: s}, lo: r, ticket: h.ticket}).release(r+1, h.kind)
			err = fault(backend.ErrWin, "closed while this rank held the lock of rank %d's part", r)
		}
	}
	return err
}

// The locks of a part on another node. This rank asks the part's rank to take the lock. If others hold it, it asks again
// and waits until the other rank answers. It can give up at any time: it asks the other rank to release the lock with
// this ticket, held or not.

// lockRemote waits for the lock of a part on another node.
func (w *Window) lockRemote(kind window.Kind, rank int, ticket uint64) error {
	said := "that rank has not answered"
	state, err := w.askLock(windowRequest{kind: requestTryLock, lock: kind, ticket: ticket}, rank)
	if err == nil && state != 0 {
		said = state.String()
		_, err = w.askLock(windowRequest{kind: requestWaitLock, lock: kind, ticket: ticket}, rank)
	}
	if err != nil { // the other rank may have given it the lock, and may never answer
		w.s.unlockRemote(kind, rank, ticket)
		err = whileLocked(err, rank, said)
	}
	return err
}

// askLock sends a request for a lock, and waits for the answer until the window is closed.
func (w *Window) askLock(h windowRequest, rank int) (window.LockState, error) {
	if err := w.post(&h, rank, nil, true); err != nil {
		return 0, err
	}
	s := w.s
	a := &lockAnswer{s: s}
	a.req.Notify = func(*backend.Request) { s.putTag(int(h.tag)) } // also if this rank does not wait any more
	a.req.Begin()
	s.remote.core.bc.Irecv(&a.req, view.Bytes(a.state[:]), rank, int(h.tag))
	err := s.remote.core.bc.Await(w.c.bound, a)
	switch {
	case a.req.Ready():
		return a.state[0], a.req.Err
	case s.origin.IsShut():
		err = errNotOpen
	case err == nil:
		err = s.failure()
	}
	return 0, err
}

// lockAnswer is ready when this rank has a lock, or need not wait for it any more.
type lockAnswer struct {
	req   backend.Request
	s     *windowCore
	state [1]window.LockState
}

// Ready implements backend.Pending.
func (a *lockAnswer) Ready() bool {
	return a.req.Ready() || a.s.origin.IsShut() || a.s.failure() != nil
}

// unlockRemote releases the lock of a part on another node, or gives it up. It does not wait: the request goes behind
// those that this rank has sent.
func (s *windowCore) unlockRemote(kind window.Kind, rank int, ticket uint64) {
	m := s.messages.Get().(*message)
	view.Of[windowRequest](m.buf[:])[0] = windowRequest{kind: requestUnlock, lock: kind, ticket: ticket}
	s.transmit(m, m.buf[:requestSize], rank, requestTag)
}

// remoteLock is the lock of this rank's part for a rank of another node.
//
// The word state says what has become of it. The goroutine that waits for the lock makes it held. It is made over by the
// server when the rank unlocks, by the receive departure when that rank closes its end of remote, or by release. Whoever
// comes first decides, by an atomic operation: it releases the lock, and the others have nothing to do.
//
// Invariant: a rank that has closed its end of remote has no lock, however late its requests are carried out. But after
// a loss the lock stays taken: what it guards may be half done.
type remoteLock struct {
	source    int
	ticket    uint64
	kind      window.Kind
	state     word.Uint32
	departure backend.Request // a receive for which no message comes. On mpi it does not end, and the unlock arrives
}

const (
	lockWaits uint32 = iota
	lockHeld
	lockOver
)

// departureTag returns the tag of the receives departure. Those of answers are below it.
func (s *windowCore) departureTag() int { return int(s.core.maxTag) }

// track adds a lock for a request to those of the server, which calls it.
func (s *windowCore) track(h *windowRequest, source int, state uint32) *remoteLock {
	l := &remoteLock{source: source, ticket: h.ticket, kind: h.lock}
	l.state.Store(state)
	s.server.locks = append(s.server.locks, l)
	l.departure.Notify = func(r *backend.Request) {
		if allLeft(r.Err) && s.target.Enter() { // once target is shut, windowCore.release does this
			s.over(l)
			s.target.Leave()
		}
	}
	l.departure.Begin()
	s.remote.core.bc.Irecv(&l.departure, nil, source, s.departureTag())
	return l
}

// over releases a lock, unless it is over.
func (s *windowCore) over(l *remoteLock) {
	switch part := &s.parts[s.core.rank]; l.state.Swap(lockOver) {
	case lockWaits:
		part.Ring()
	case lockHeld:
		part.Unlock(l.kind, l.source)
	}
}

var errLockOver = errors.New("the rank does not wait any more")

// carryOutLock carries out a request for the lock of this rank's part.
func (s *windowCore) carryOutLock(h *windowRequest, source int) {
	part := &s.parts[s.core.rank]
	switch tag := int(h.tag); h.kind {
	case requestTryLock:
		state, got := part.TryLock(h.lock, source)
		if got {
			state = 0
			s.track(h, source, lockHeld)
		}
		m := s.messages.Get().(*message)
		out := m.buf[:8]
		view.Of[window.LockState](out)[0] = state
		s.transmit(m, out, source, tag)
	case requestWaitLock:
		l := s.track(h, source, lockWaits)
		s.target.Stay()
		word.Go(func() {
			defer s.target.Leave()
			s.waitFor(l, part, tag)
		})
	case requestUnlock:
		for i, l := range s.server.locks {
			if l.source == source && l.ticket == h.ticket {
				s.server.locks = slices.Delete(s.server.locks, i, i+1)
				s.over(l)
				s.remote.core.bc.Cancel(&l.departure)
				return
			}
		}
	}
}

// waitFor waits for a lock for the rank of another node, and answers when the rank has it or has given it up.
func (s *windowCore) waitFor(l *remoteLock, part *window.Part, tag int) {
	x := waiter{s, &s.target, until{bc: s.core.bc}}
	err := part.Lock(l.kind, l.source, func() error {
		if l.state.Load() == lockOver {
			return errLockOver
		}
		return x.expired()
	})
	if err == nil && !l.state.CompareAndSwap(lockWaits, lockHeld) {
		part.Unlock(l.kind, l.source)
	}
	if err != nil && err != errLockOver {
		s.giveUp(err)
		return
	}
	s.transmit(s.messages.Get().(*message), nil, l.source, tag)
}
