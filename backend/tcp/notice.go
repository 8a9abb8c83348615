package tcp

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/wire"
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

// Break implements backend.Comm.
func (c *comm) Break(err error) {
	e := c.e
	f, ok := err.(*backend.Fault)
	if !ok {
		f = &backend.Fault{Sentinel: backend.Sentinel(backend.Code(err)), Text: err.Error()}
	}
	e.mu.Lock()
	if c.broken(f) {
		c.broadcast(wire.Broken, encodeFault(f))
	}
	e.unlock()
}

// tell sends a notice to the other members.
func (c *comm) broadcast(kind wire.Kind, body []byte) {
	for r, w := range c.World {
		if r != c.rank && !c.e.left(w) {
			c.sendNotice(w, kind, body)
		}
	}
}

// sendNotice sends a notice to one member, through the hub if there is no connection.
func (c *comm) sendNotice(world int, kind wire.Kind, body []byte) {
	e := c.e
	if l := e.links[world]; l.wanted {
		l.emit(&wire.Header{Kind: kind, Context: c.id, Length: uint64(len(body))}, body, nil)
		return
	}
	e.relay(world, kind, c.id, body)
}

// early holds the notices for a communicator that this rank has not made yet.
type early struct {
	broken *backend.Fault
	closed []int // world ranks
}

// earlyMax is the largest number of communicators with notices that this rank has not made. A loss may
// prevent it from ever making one, and these must not pile up: ids grow, and the lowest is dropped.
const earlyMax = 1 << 10

func (e *engine) earlyFor(id uint32) *early {
	if e.early[id] == nil {
		if len(e.early) >= earlyMax {
			delete(e.early, slices.Min(slices.Collect(maps.Keys(e.early))))
		}
		e.early[id] = &early{}
	}
	return e.early[id]
}

// onBreak handles a notice of Break.
func (e *engine) onBreak(from int, id uint32, f *backend.Fault) {
	switch c := e.comms[id]; {
	case c != nil:
		if c.broken(f) {
			c.spreadBreak(from, f)
		}
	case e.closing[id] == nil:
		e.earlyFor(id).broken = f
	}
}

// spreadBreak forwards the notice of a break to the ranks with a connection. The others get it from the
// rank that broke the communicator.
func (c *comm) spreadBreak(from int, f *backend.Fault) {
	e := c.e
	for r, w := range c.World {
		if r != c.rank && w != from && !e.left(w) && e.links[w].wanted {
			c.sendNotice(w, wire.Broken, encodeFault(f))
		}
	}
}

// sayEnded begins a connection with notices of the communicators of both ranks that are broken, or closed
// by this one. Notices through the hub may be late, or lost with it.
func (l *link) sayEnded() {
	say := func(c *comm, closed bool) {
		if c.RankOf(l.peer) < 0 {
			return
		}
		if f := c.brk.Load(); f != nil {
			body := encodeFault(f)
			l.queue(&wire.Header{Kind: wire.Broken, Context: c.id, Length: uint64(len(body))}, body, nil)
		}
		if closed && !c.isWorld {
			l.queue(&wire.Header{Kind: wire.Closed, Context: c.id}, nil, nil)
		}
	}
	for _, c := range l.e.comms {
		say(c, false)
	}
	for _, c := range l.e.closing {
		say(c, true)
	}
}

// onClose notes that another rank has closed a communicator.
func (e *engine) onClose(id uint32, world int) {
	c, open := e.comms[id]
	if !open {
		c = e.closing[id]
	}
	if c == nil {
		x := e.earlyFor(id)
		x.closed = append(x.closed, world)
		return
	}
	if r := c.RankOf(world); r >= 0 {
		c.gone[r].Store(true)
	}
	if !open { // its control communicator may be
		e.allClosed(id, c)
	}
	e.dropWhere(func(o *op) error {
		if o.comm != c && o.comm.parent != c {
			return nil
		}
		if o.state == opPosted {
			return e.cannotCome(o.comm, o.node.Env)
		}
		if o.peer == world {
			return o.comm.goneFault(c.RankOf(world))
		}
		return nil
	})
	e.wakeOthers()
}

// catchUp applies the notices that came before the communicator was made.
func (e *engine) catchUp(c *comm) {
	x := e.early[c.id]
	if x == nil {
		return
	}
	delete(e.early, c.id)
	for _, w := range x.closed {
		if r := c.RankOf(w); r >= 0 {
			c.gone[r].Store(true)
		}
	}
	if x.broken != nil && c.broken(x.broken) {
		c.spreadBreak(e.me, x.broken)
	}
}

// isGone reports whether a rank has closed the communicator or left the job, so that no message from it
// can arrive. A rank that has closed a communicator does not use its control communicator either.
func (c *comm) isGone(r int) bool {
	return c.gone[r].Load() || c.parent != nil && c.parent.gone[r].Load() || c.e.left(c.World[r])
}

func (c *comm) goneFault(r int) error {
	w := c.World[r]
	if f := c.fault.Load(); f != nil { // it is gone because of that, or after it
		return f
	}
	if c.e.left(w) || c.isWorld {
		return c.e.leftFault(w)
	}
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: fmt.Sprintf("rank %d has closed this communicator", r)}
}

// allClosed forgets a closed communicator when every member has closed it: until then one of them
// may still send to it.
func (e *engine) allClosed(id uint32, c *comm) {
	for r := range c.World {
		if r != c.rank && !c.isGone(r) {
			return
		}
	}
	delete(e.closing, id)
}

// broken marks the communicator broken and ends its operations: those of collectives with the cause, the
// others with ErrBroken. The lock is held.
func (c *comm) broken(f *backend.Fault) bool {
	if !c.brk.CompareAndSwap(nil, f) {
		return false
	}
	c.e.dropWhere(func(o *op) error {
		switch {
		case o.comm != c:
			return nil
		case o.receives() && o.node.Env.Tag < 0 && o.node.Env.Tag != backend.AnyTag, !o.receives() && o.tag < 0:
			return f
		}
		return brokenBy(f)
	})
	c.e.wakeOthers()
	return true
}

func (o *op) receives() bool { return o.state == opPosted || o.state == opTaking }

// stale is how long ago a waiter may have looked at the sockets for what it saw still to count.
const stale = time.Millisecond

// Broken implements backend.Comm. It reads the sockets if they have not been read for a while: the notice
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
	if e.fault.Load() == nil {
		f := &backend.Fault{Sentinel: backend.ErrPeerLost, Text: fmt.Sprintf("rank %d aborted the job with code %d", e.me, code)}
		e.broadcast(&wire.Header{Kind: wire.Abort, Tag: int32(code)}, []byte(f.Text))
		e.end(f)
	}
	e.unlock()
	e.wakeAll()
	e.flush()
	return nil
}

// onAbort ends all communicators, and forwards the notice: the others may learn of this rank's leaving
// first.
func (e *engine) onAbort(code int32, text []byte) {
	if e.fault.Load() == nil {
		e.broadcast(&wire.Header{Kind: wire.Abort, Tag: code}, bytes.Clone(text)) // text is a link's, and the notice may wait
		e.end(&backend.Fault{Sentinel: backend.ErrPeerLost, Text: string(text)})
	}
}

// Close implements backend.Comm.
func (c *comm) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	e := c.e
	e.mu.Lock()
	delete(e.comms, c.id)
	e.closing[c.id] = c
	e.dropWhere(func(o *op) error {
		if o.comm == c {
			return &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}
		}
		return nil
	})
	e.arrived.Each(func(n *match.Node) bool {
		if n.Env.Ctx == c.id {
			e.arrived.Remove(n)
			e.putMsg(n.Owner.(*msg))
		}
		return true
	})
	if e.fault.Load() == nil {
		if f := c.brk.Load(); f != nil {
			c.broadcast(wire.Broken, encodeFault(f)) // the cause before the closing
		}
		if !c.isWorld {
			c.broadcast(wire.Closed, nil)
		}
	}
	e.allClosed(c.id, c)
	e.unlock()
	e.wakeAll()
	if c.isWorld {
		e.leave()
	}
	return nil
}

// How long leaving the job may take: for what is queued to get into the sockets.
const (
	leaveFor  = 3 * time.Second // without a byte that moves
	leaveMost = 10 * time.Second
)

// leave ends this rank's part of the job.
//
//  1. The goodbye goes behind everything that was sent.
//  2. It is given time to get into the sockets, and the connections are ended for writing.
//  3. It is given time to get to the other ends. A socket that is closed with unread bytes, or that
//     receives some later, answers with a reset. The reset discards what has not arrived, and may overtake
//     it on a loaded machine; the other end would see a death.
func (e *engine) leave() {
	if e.demand != nil {
		e.takeLeave()
	}
	close(e.stop)
	e.ticker.Wait()
	e.mu.Lock()
	for _, c := range e.comms {
		c.closed.Store(true)
	}
	if !e.excluded && e.demand == nil { // a rank that is lost for some must not leave in good order for others
		e.broadcast(&wire.Header{Kind: wire.Goodbye}, nil)
	}
	e.unlock()
	e.flush()
	e.mu.Lock()
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "the job was left"})
	e.isClosed = true
	for _, f := range e.goodbyes {
		f.end()
	}
	e.goodbyes = nil
	var fds []int
	for _, l := range e.links {
		if l == nil || l.dead {
			continue
		}
		l.forget()
		if l.fd >= 0 {
			l.finish()
			fds = append(fds, l.fd)
		}
		l.dead, l.fd = true, -1
	}
	e.unlock()
	if e.demand != nil {
		e.demand.end()
	}
	e.wakeAll()
	e.hangUp()
	e.mu.Lock()
	for _, l := range e.open {
		if l.over != nil {
			l.over.release() // no goroutine sleeps or reads any more
		}
	}
	if e.demand != nil {
		e.demand.release()
	}
	e.mu.Unlock()
	part(fds)
}

// part closes sockets that have been ended for writing when the other ends have everything.
func part(fds []int) {
	buf := make([]byte, readSize)
	start := time.Now()
	last, before := start, -1
	for {
		unsent := 0
		for _, fd := range fds {
			for range 1000 {
				if n, err := sockRead(fd, buf); n <= 0 || err != nil {
					break
				}
			}
			unsent += sockUnsent(fd)
		}
		if unsent != before {
			last, before = time.Now(), unsent
		}
		if unsent == 0 || time.Since(last) > leaveFor || time.Since(start) > leaveMost {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	for _, fd := range fds {
		sockClose(fd)
	}
}

// flush gives what is queued a bounded time to get into the sockets, and reads meanwhile: two ranks
// that leave with full sockets between them would wait for each other.
func (e *engine) flush() {
	var p pollset
	start := time.Now()
	for last := start; time.Since(last) < leaveFor && time.Since(start) < leaveMost; {
		e.mu.Lock()
		if e.progress() {
			last = time.Now()
		}
		p.reset()
		ready := false
		for _, l := range e.open {
			if l.fd >= 0 && l.waits() {
				ready = l.listen(&p) || ready
			}
		}
		e.unlock()
		if p.len() == 0 {
			return
		}
		if !ready {
			p.wait(10 * time.Millisecond)
		}
	}
}
