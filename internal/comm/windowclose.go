package comm

import (
	"cmp"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// How a window is closed. Its gates are its state:
//
//	state     origin  target  means                                                   next state, entered by
//	open      open    open    operations begin, and other ranks are served            closing: Close, closeLocal
//	closing   shut    open    no operation begins, and other ranks are served         released: release
//	released  shut    shut    nothing begins, and what is inside keeps the memory
//
// The goroutine that shuts origin takes all steps. All ranks call Close. A communicator that the window stands on calls
// closeLocal, on each rank that closes the communicator. A window that has failed is closed in the same way.
//
//  1. Shut origin, and wait for this rank's operations.
//  2. With ranks on other nodes: release the locks that this rank holds, and complete its accesses. Close also serves the
//     others until all ranks have called it (barrier).
//  3. release: shut target, end the requests under way, wait until nobody is inside a gate, and release the locks that
//     are left.
//  4. closeMemory: unmap the memory, unless somebody is still inside. The ranks close memory of a library together.
//  5. closeComms: close the communicators that the window has made.

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
	if !s.inClose.CompareAndSwap(false, true) {
		return nil // another goroutine closes it
	}
	defer s.inClose.Store(false)
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
	w = w.withDeadline()
	s.core.bc.Wake()
	finished, arrived, near := s.core.bc.Await(w.c.bound, (*unused)(s)), error(nil), sharers{w.c, together}
	if s.remote != nil {
		s.origin.AwaitEmpty(QuiesceFor) // it is, unless the time of Close is over
		finished = cmp.Or(s.unlockAll(), finished, w.flushAll())
		arrived, near = s.barrier(w.c, closeCall, nil), sharers{Comm: w.c.on(s.node)}
	}
	released := s.release(time.Now().Add(QuiesceFor), near)
	return w.Failed("close", Undefined, cmp.Or(finished, arrived, released))
}

// closeLocal closes the window on this rank, unless another goroutine does. It waits for those that use it, until a time
// at most. by closes a communicator that the window stands on; nil: none is closed.
func (s *windowCore) closeLocal(until time.Time, by *closer) {
	if !s.origin.Shut() {
		return
	}
	s.core.bc.Wake()
	if s.remote != nil {
		s.origin.AwaitEmpty(remaining(s.answersUntil(until)))
		_ = s.unlockAll()
		_ = s.limited(s.answersUntil(until)).flushAll()
	}
	near := sharers{Comm: s.near}
	if by != nil && by.core == near.core {
		near.taken = by.takeLast()
	}
	_ = s.release(until, near)
}

// answersUntil returns the time until which closeLocal waits for answers of other ranks, which is until or earlier. A library
// does not tell that a rank has closed the window and so will not answer.
func (s *windowCore) answersUntil(until time.Time) time.Time {
	if soon := time.Now().Add(graceFor); s.core.bc.Caps().Library != "" && soon.Before(until) {
		return soon
	}
	return until
}

// limited returns a handle without a context, whose operations end at a time.
func (s *windowCore) limited(until time.Time) *Window {
	return &Window{&Comm{core: s.core, bound: &backend.Bound{Timeout: remaining(until), Since: time.Now()}}, s}
}

// sharers is a handle of the communicator of the ranks that share the window's memory.
type sharers struct {
	*Comm
	taken bool // the caller has taken it
}

// release takes steps 3 to 5. Memory that is still in use at the given time stays mapped, and the locks that this rank
// holds are released nevertheless. The caller has shut origin.
func (s *windowCore) release(until time.Time, near sharers) error {
	s.target.Shut()
	close(s.released)
	if s.remote != nil { // its Close ends the requests under way
		s.server.posting.Lock()
		s.remote.core.bc.Cancel(&s.server.in) // mpi does not free a communicator that has a receive
		s.server.posting.Unlock()
		_ = s.remote.core.bc.Close()
		s.core.bc.Wake()
	}
	var inside error
	if !s.origin.AwaitEmpty(remaining(until)) || !s.target.AwaitEmpty(remaining(until)) {
		inside = fault(backend.ErrBusy, "another goroutine still uses the window, whose memory stays mapped")
	} else if !isLoss(s.failure()) {
		for _, l := range s.server.locks {
			s.over(l)
		}
	}
	var unlocked error
	if s.remote == nil { // with other nodes the caller has released them
		unlocked = s.unlockAll()
	}
	err := cmp.Or(s.closeMemory(near, inside), unlocked)
	for _, k := range s.cores() {
		k.mu.Lock()
		k.windows = slices.DeleteFunc(k.windows, func(o *windowCore) bool { return o == s })
		k.mu.Unlock()
	}
	s.closeComms(until)
	return err
}

// closeMemory closes the memory. inside is the error if a goroutine may still use it, which keeps it.
func (s *windowCore) closeMemory(near sharers, inside error) error {
	err, c := inside, near.withDeadline()
	if s.mem.Joint() {
		if !near.taken {
			if e := c.take(); e != nil {
				s.mem.Abandon()
				return cmp.Or(inside, e)
			}
			defer c.core.life.leave()
		}
		if err = cmp.Or(inside, c.windowBarrier(closeCall, s.number, inside)); err != nil {
			s.mem.Abandon()
		}
	}
	if err == nil {
		err = s.mem.Close(c.bound)
	}
	return err
}

// closeComms closes the communicators that the window has made.
func (s *windowCore) closeComms(until time.Time) {
	for _, c := range []*Comm{s.node, s.remote} {
		if c != nil {
			_ = c.core.close(until)
		}
	}
}

// closer is the Close of a communicator.
type closer struct {
	core     *core
	takeLast func() bool // takes the communicator; false: another goroutine is still in a collective, which excludes a second one
}

// closeWindows closes the windows in the order in which they were made, which is the same on all ranks.
func (c *closer) closeWindows(open []*windowCore, end time.Time) {
	if soon := time.Now().Add(graceFor); end.Before(soon) {
		end = soon
	}
	slices.SortFunc(open, func(a, b *windowCore) int { return cmp.Compare(a.number, b.number) })
	for _, s := range open {
		s.closeLocal(end, c)
	}
}

// graceFor is how long a window's users have to notice that it is being closed, however late it is. Those that
// wait for a lock look every millisecond.
const graceFor = 100 * time.Millisecond
