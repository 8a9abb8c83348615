package comm

import (
	"cmp"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// unused is ready when this rank's operations on a window that is being closed have ended.
type unused windowCore

// Ready implements backend.Pending.
func (u *unused) Ready() bool { return u.origin.Empty() }

// Close closes the window, and releases the locks that this rank holds. If the ranks are on several nodes it waits for
// the others, and serves them until then; if the memory belongs to a library, they close it together. Close is a change
// of the communicator, whose Close waits for it. A context that is over does not keep the memory.
func (w *Window) Close() error {
	if w == nil || w.s.origin.IsShut() {
		return nil
	}
	s, life := w.s, &w.s.core.life
	if !life.changes.Enter() {
		return nil // the communicator's Close closes it
	}
	defer life.changes.Leave()
	if !s.closes.CompareAndSwap(false, true) {
		return nil // another goroutine closes it
	}
	defer s.closes.Store(false)
	if w.c.ctx != nil && w.c.ctx.Err() != nil {
		w = s.limited(time.Now().Add(QuiesceFor))
	}
	together := s.remote != nil || s.mem.Joint()
	if together {
		switch err := w.c.take(); err {
		case nil:
			defer life.leave()
		case errClosed:
			return nil
		default:
			return w.Failed("close", Undefined, err)
		}
	}
	if !s.origin.Shut() {
		return nil
	}
	w = w.begun()
	s.core.bc.Wake()
	finished, arrived, near := s.core.bc.Await(w.c.bound, (*unused)(s)), error(nil), w.c
	if s.remote != nil {
		s.origin.AwaitEmpty(QuiesceFor) // it is, unless the time of Close is over
		finished = cmp.Or(s.unlockAll(), finished, w.flushAll())
		arrived, near = s.meet(w.c, closeCall, nil), w.c.on(s.node)
	}
	freed := s.free(time.Now().Add(QuiesceFor), near, s.remote == nil)
	return w.Failed("close", Undefined, cmp.Or(finished, arrived, freed))
}

// end closes the window on this rank, unless another goroutine does. It waits for those that use it, until a time at
// most. by closes a communicator that the window stands on; nil: none is closed.
func (s *windowCore) end(until time.Time, by *closer) {
	if !s.origin.Shut() {
		return
	}
	s.core.bc.Wake()
	w := s.limited(until)
	if s.remote != nil {
		s.origin.AwaitEmpty(left(until))
		_ = s.unlockAll()
		_ = w.flushAll()
	}
	near, has := s.near, false
	if by != nil && by.core == near.core {
		has = by.alone()
	}
	_ = s.free(until, near, has)
}

// limited returns a handle without a context, whose operations end at a time.
func (s *windowCore) limited(until time.Time) *Window {
	return &Window{&Comm{core: s.core, bound: &backend.Bound{Timeout: left(until), Since: time.Now()}}, s}
}

// free frees what the window stands on, when this rank's operations on it have ended. Memory that is still in use at the
// given time stays mapped, and its locks are released nevertheless. The caller has shut origin. near and has are those of
// unmap.
func (s *windowCore) free(until time.Time, near *Comm, has bool) error {
	s.target.Shut()
	close(s.done)
	if s.remote != nil { // its Close ends the requests under way
		s.server.posting.Lock()
		s.remote.core.bc.Cancel(&s.server.in) // else mpi does not free the communicator
		s.server.posting.Unlock()
		_ = s.remote.core.bc.Close()
		s.core.bc.Wake()
	}
	var inside error
	if !s.origin.AwaitEmpty(left(until)) || !s.target.AwaitEmpty(left(until)) {
		inside = fault(backend.ErrBusy, "another goroutine still uses the window, whose memory stays mapped")
	} else if !isLoss(s.failure()) {
		for _, l := range s.server.locks {
			s.over(l)
		}
	}
	var unlocked error
	if s.remote == nil { // else the caller has released them
		unlocked = s.unlockAll()
	}
	err := cmp.Or(s.unmap(inside, near, has), unlocked)
	for _, k := range s.cores() {
		k.mu.Lock()
		k.windows = slices.DeleteFunc(k.windows, func(o *windowCore) bool { return o == s })
		k.mu.Unlock()
	}
	s.close(until)
	return err
}

// unmap closes the memory, unless a goroutine is inside. The ranks that share it close it together if it belongs to a
// library. near is a handle of their communicator, which the caller has taken if has is true.
func (s *windowCore) unmap(inside error, near *Comm, has bool) error {
	err := inside
	near = near.begun()
	if s.mem.Joint() {
		if !has {
			if e := near.take(); e != nil {
				s.mem.Abandon()
				return cmp.Or(inside, e)
			}
			defer near.core.life.leave()
		}
		if err = cmp.Or(inside, near.arrive(closeCall, s.number, inside)); err != nil {
			s.mem.Abandon()
		}
	}
	if err == nil {
		err = s.mem.Close(near.bound)
	}
	return err
}

// close closes the communicators that the window has made.
func (s *windowCore) close(until time.Time) {
	for _, c := range []*Comm{s.node, s.remote} {
		if c != nil {
			_ = c.core.close(until)
		}
	}
}

// closer is the Close of a communicator.
type closer struct {
	core  *core
	alone func() bool // takes the communicator; false: another goroutine is still in a collective, which excludes a second one
}

// closeWindows closes the windows in the order in which they were made, which is the same on all ranks.
func (c *closer) closeWindows(open []*windowCore, end time.Time) {
	if soon := time.Now().Add(graceFor); end.Before(soon) {
		end = soon
	}
	slices.SortFunc(open, func(a, b *windowCore) int { return cmp.Compare(a.number, b.number) })
	for _, s := range open {
		s.end(end, c)
	}
}

// graceFor is how long a window's users have to notice that it is being closed, however late it is. Those that
// wait for a lock look every millisecond.
const graceFor = 100 * time.Millisecond
