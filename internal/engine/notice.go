package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
	"github.com/cohort-hpc/cohort/internal/wait"
)

// Besides messages, ranks send each other notices about a communicator: that it is broken, and that they
// have closed it.
//
// Invariant: when a message arrives, on any communicator, the receiver has the notice of every
// communicator of both ranks that the sender knew to be broken when it sent the message. The notice from
// the rank that broke it uses another connection, and may be overtaken: then a rank would find the rest of
// the others' call, compare its own call with it, and take the failure for a mismatch. So a rank that
// receives such a notice forwards it on its connections, and sends it first on a new connection
// (sayEnded).

// Break implements backend.Comm. If this rank has closed the communicator the others may have forgotten it,
// and Close has sent them what was known before.
func (c *comm) Break(err error) {
	e, f := c.e, backend.AsFault(err)
	e.mu.Lock()
	c.breakEverywhere(f)
	e.mu.Unlock()
}

// breakEverywhere breaks the communicator, and tells the other members. The lock is held.
func (c *comm) breakEverywhere(f *backend.Fault) {
	if c.markBroken(f) && !c.closed.Load() {
		c.broadcast(frame.Broken, f.Encode(noticeMax), everyone)
	}
}

// broadcast sends a notice to the other members for which to is true, through the hub where there is no connection.
func (c *comm) broadcast(kind frame.Kind, body []byte, to func(p *peer) bool) {
	e := c.e
	for r, w := range c.World {
		if r == c.rank || e.hasLeft(w) || !to(e.peers[w]) {
			continue
		}
		h := frame.Header{Kind: kind, Context: c.id}
		if p := e.peers[w]; !unlinked(p) {
			p.emit(h, body, nil)
		} else if e.demand != nil && e.membership.Hub != e.me {
			h.Tag = int32(e.me)*frame.MaxRanks + int32(w)
			e.peers[e.membership.Hub].emit(h, body, nil)
		}
	}
}

func everyone(*peer) bool   { return true }
func unlinked(p *peer) bool { return p.state.Link == membership.None }

// onEnd handles the notice of a rank that has broken a communicator because of f, or has closed it if f is nil. A break
// is forwarded to the ranks with a connection. The others get it from the rank that broke the communicator.
func (e *Engine) onEnd(from int, id uint32, f *backend.Fault) {
	switch c := e.comms[id]; {
	case c == nil && e.retains(id): // it is not made here yet
		e.early[id] = append(e.early[id], func() { e.onEnd(from, id, f) })
	case c == nil: // it never will be, or all members have closed it: a notice through the hub may come once more
	case f == nil:
		if r := c.RankOf(from); r >= 0 {
			c.gone[r].Store(true)
		}
		e.sweep()
	case !c.closed.Load() && c.markBroken(f):
		c.broadcast(frame.Broken, f.Encode(noticeMax), func(p *peer) bool { return !unlinked(p) && p.rank != from })
	}
}

// notices passes on the notices that this rank owes the other members, the cause before the closing.
func (c *comm) notices(send func(kind frame.Kind, body []byte)) {
	if f := c.brk.Load(); f != nil {
		send(frame.Broken, f.Encode(noticeMax))
	}
	if c.closed.Load() && !c.isWorld {
		send(frame.Closed, nil)
	}
}

// sayEnded begins a connection with notices of the communicators of both ranks that are broken, or closed
// by this one. Notices through the hub may be late, or lost with it.
func (p *peer) sayEnded() {
	for _, c := range p.e.comms {
		if c.RankOf(p.rank) >= 0 {
			c.notices(func(kind frame.Kind, body []byte) {
				p.queue(frame.Header{Kind: kind, Context: c.id}, body, nil)
			})
		}
	}
}

// isGone reports whether a rank has closed the communicator or left the job, so that no message from it
// can arrive. A rank that has closed a communicator does not use its control communicator either.
func (c *comm) isGone(r int) bool {
	return c.gone[r].Load() || c.parent != nil && c.parent.gone[r].Load() || c.e.hasLeft(c.World[r])
}

// goneFault is the error of an operation that needs a rank for which isGone is true.
func (c *comm) goneFault(r int) error {
	w := c.World[r]
	left := c.e.hasLeft(w) || c.isWorld
	switch f, loss := c.fault.Load(), c.e.losses[w]; {
	case f != nil: // it is gone because of that, or after it
		return f
	case left && loss != nil:
		return loss
	case left:
		return backend.PeerLeft("rank %d has closed its communicator and left the job", w)
	}
	return backend.PeerLeft("rank %d has closed this communicator", r)
}

// forget forgets the communicator if every member has closed it: until then one of them may still send to
// it. If the notice of this rank is lost with a hub after that, a member keeps the communicator until it leaves, and
// nothing waits for it: that member has closed the communicator too.
func (c *comm) forget() {
	if !c.closed.Load() {
		return
	}
	for r := range c.World {
		if r != c.rank && !c.isGone(r) {
			return
		}
	}
	delete(c.e.comms, c.id)
	if c.native != nil {
		c.native.Close()
	}
}

// markBroken marks the communicator broken and ends its operations: those of collectives with the cause, the
// others with ErrBroken. It returns false if the communicator was broken before. The lock is held.
func (c *comm) markBroken(f *backend.Fault) bool {
	if c.brk.Load() != nil {
		return false
	}
	c.publish(f)
	c.brk.Store(f)
	c.e.sweep()
	return true
}

// lose ends the communicator because of f, unless it has ended already. If it was broken before, it stays broken: a rank
// that ends its process because of a mismatch has sent the notice of that before. The lock is held.
func (c *comm) lose(f *backend.Fault) {
	if c.fault.Load() == nil {
		if brk := c.brk.Load(); brk != nil && c.e.fault.Load() == nil {
			f = brk
		}
		c.publish(f)
		c.fault.Store(f)
	}
}

// publish tells the ranks of this node why the communicator ends, before this rank acts on it. nil: it is closed.
func (c *comm) publish(f *backend.Fault) {
	if c.native != nil {
		c.native.Ended(f)
	}
}

// stale is how long ago a waiter may have looked at the links for what it saw still to count.
const stale = time.Millisecond

// Broken implements backend.Comm. It reads the links if they have not been read for a while: the notice
// may have arrived.
func (c *comm) Broken() error {
	if c.brk.Load() == nil && time.Since(epoch)-time.Duration(c.e.looked.Load()) > stale {
		c.e.poll()
	}
	if f := c.brk.Load(); f != nil {
		return f
	}
	if f := c.fault.Load(); f != nil && c.parent != nil { // all communicators have ended
		return f
	}
	return nil
}

// Abort implements backend.Comm.
func (c *comm) Abort(code int) error {
	e := c.e
	e.mu.Lock()
	e.onAbort(int32(code), fmt.Appendf(nil, "rank %d aborted the job with code %d", e.me, code))
	e.mu.Unlock()
	e.crew.Ask()
	e.crew.Await(wait.NewMember(e.newLeaving(leaveFlush, leaveFlush, leaveFor))) // writes what is queued
	return nil
}

// onAbort ends all communicators, and sends the notice on: the others may learn of this rank's leaving first.
func (e *Engine) onAbort(code int32, text []byte) {
	if e.fault.Load() == nil {
		e.broadcast(frame.Header{Kind: frame.Abort, Tag: code}, bytes.Clone(text)) // text is a link's, and the notice may wait
		e.end(&backend.Fault{Sentinel: backend.ErrPeerLost, Text: string(text)})
	}
}

// Close implements backend.Comm.
func (c *comm) Close() error {
	var err error
	if c.native != nil && !c.closed.Load() {
		err = c.native.Quiesce()
	}
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	c.Recovery.Close()
	c.retire()
	c.e.crew.Ask()
	if c.isWorld {
		err = cmp.Or(err, c.e.leave())
	}
	return err
}

// UnderWay implements backend.Comm.
func (c *comm) UnderWay(f func(r *backend.Request, moves bool)) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.e.each(func(o *op) {
		if o.comm == c {
			f(o.req, o.state != opPosted)
		}
	})
}

// retire ends the operations of a closed communicator, and tells the other members.
func (c *comm) retire() {
	e := c.e
	e.mu.Lock()
	e.forsake()
	c.publish(nil)
	if e.fault.Load() == nil {
		c.notices(func(kind frame.Kind, body []byte) { c.broadcast(kind, body, everyone) })
	}
	if c.native != nil {
		c.native.CloseUnused()
	}
	e.sweep()
	e.mu.Unlock()
}
