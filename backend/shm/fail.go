package shm

import (
	"fmt"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// The job's first failure stands in the control area: state goes from 0 to 1,
// the rest is filled in, and state goes to 2.
const (
	jobRuns uint32 = iota
	jobFailing
	jobFailed
)

// fail ends the job. The lock is held.
func (e *engine) fail(rank int, sentinel error, text string) {
	if e.ctl.state.CompareAndSwap(jobRuns, jobFailing) {
		e.ctl.rank, e.ctl.code = int32(rank), uint32(backend.Code(sentinel))
		e.ctl.bytes = uint32(copy(e.ctl.text[:], text))
		e.ctl.state.Store(jobFailed)
		for r := range e.area {
			if r != e.me {
				e.ring(r)
			}
		}
	}
	if e.ctl.state.Load() == jobFailed {
		e.jobFailed()
		return
	}
	// Somebody was first and has not finished writing, or died doing so.
	e.end(&backend.Fault{Sentinel: sentinel, Text: text})
}

// jobFailed takes the failure in the control area over. The lock is held.
func (e *engine) jobFailed() { e.end(e.failure()) }

func (e *engine) failure() *backend.Fault {
	text := e.ctl.text[:min(e.ctl.bytes, textMax)]
	return &backend.Fault{Sentinel: backend.Sentinel(uint8(e.ctl.code)), Text: string(text)}
}

// end completes everything with the job's failure.
func (e *engine) end(f *backend.Fault) {
	if !e.fault.CompareAndSwap(nil, f) {
		return
	}
	e.dropWhere(func(*op) error { return f })
	e.wakeOthers()
}

// dropWhere completes the operations for which why returns an error. Receives
// whose peer may still be writing are among them only when the job has failed.
func (e *engine) dropWhere(why func(*op) error) {
	e.posted.Each(func(n *match.Node) bool {
		o := n.Owner.(*op)
		if err := why(o); err != nil {
			e.posted.Remove(n)
			e.finish(o, backend.Status{}, err)
		}
		return true
	})
	keep := e.queued[:0]
	for _, o := range e.queued {
		if err := why(o); err != nil {
			e.finish(o, backend.Status{}, err)
			continue
		}
		keep = append(keep, o)
	}
	clear(e.queued[len(keep):])
	e.queued = keep
	for _, o := range e.offers {
		if o == nil {
			continue
		}
		if err := why(o); err != nil && (e.fault.Load() != nil || o.desc.state.CompareAndSwap(descState(o.gen, descOffered), descState(o.gen, descRevoked))) {
			e.release(o)
			e.finish(o, backend.Status{}, err)
		}
	}
	if e.fault.Load() != nil {
		for _, o := range e.takes {
			e.finish(o, backend.Status{}, why(o))
		}
		e.takes = nil
	}
}

// ended is told by the watch that a process has ended.
func (e *engine) ended(rank int) {
	if e.area[rank].left.Load() != 0 {
		return
	}
	e.mu.Lock()
	e.fail(rank, backend.ErrPeerLost, fmt.Sprintf("rank %d (process %d) ended without closing its communicator", rank, e.area[rank].pid.Load()))
	e.unlock()
	e.wakeAll()
}

// leftFault is the error of an operation that needs a rank that has closed.
func (e *engine) leftFault(rank int) error {
	if e.ctl.state.Load() == jobFailed { // it left because of that, or after it
		return e.failure()
	}
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: fmt.Sprintf("rank %d has closed its communicator and left the job", rank)}
}

// cannotCome returns why no message can match a receive, nil if one can.
func (e *engine) cannotCome(c *comm, want match.Env) error {
	if e.seenLeft == 0 && e.ctl.left.Load() == 0 {
		return nil
	}
	if want.Source != backend.AnySource {
		src := int(want.Source)
		if src != e.me && e.area[src].left.Load() != 0 && !e.hasNews(src) {
			return e.leftFault(src)
		}
		return nil
	}
	gone := -1
	for _, w := range c.world {
		if w == e.me || e.area[w].left.Load() == 0 || e.hasNews(w) {
			if w == e.me && len(c.world) > 1 {
				continue // a message from itself is possible, but then nobody waits here
			}
			return nil
		}
		gone = w
	}
	if gone < 0 {
		return nil
	}
	return e.leftFault(gone)
}

// hasNews reports whether a ring holds messages.
func (e *engine) hasNews(src int) bool {
	_, _, ok := e.in[src].peek()
	return ok
}

// dropLeft ends the operations that need a rank that has left.
func (e *engine) dropLeft() {
	for r := range e.area {
		if r != e.me && e.area[r].left.Load() != 0 {
			for e.hasNews(r) && e.fault.Load() == nil {
				e.drain(r)
			}
		}
	}
	e.dropWhere(func(o *op) error {
		if o.state == opPosted {
			return e.cannotCome(o.comm, o.node.Env)
		}
		if o.peer != e.me && e.area[o.peer].left.Load() != 0 {
			return e.leftFault(o.peer)
		}
		return nil
	})
}

// Break implements backend.Comm.
func (c *comm) Break(err error) {
	e := c.e
	f, ok := err.(*backend.Fault)
	if !ok {
		f = &backend.Fault{Sentinel: backend.Sentinel(backend.Code(err)), Text: err.Error()}
	}
	e.mu.Lock()
	c.tell(f)
	e.unlock()
}

// tell breaks the communicator here and everywhere. The lock is held.
func (c *comm) tell(f *backend.Fault) {
	e := c.e
	if !c.broken(f) {
		return
	}
	for r, w := range c.world {
		if r == c.rank || e.area[w].left.Load() != 0 {
			continue
		}
		o := e.getOp()
		o.comm, o.req = c, &o.own
		o.own.Begin()
		o.state, o.peer, o.note = opStopped, w, f
		if e.waitsFor(w) || !e.push(o) {
			e.queued = append(e.queued, o)
		}
	}
}

// pushBreak tells one rank that the communicator is broken.
func (e *engine) pushBreak(o *op) bool {
	f := o.note
	text := f.Text[:min(len(f.Text), textMax)]
	cell, room, ok := e.out[o.peer].room(len(text))
	if !ok {
		return false
	}
	copy(room, text)
	e.out[o.peer].publish(cell, kindBreak, o.comm.id, int32(backend.Code(f.Sentinel)), len(text))
	e.ring(o.peer)
	e.putOp(o)
	return true
}

// broken marks the communicator and ends its operations: those of collectives
// with the cause, the others with ErrBroken. The lock is held.
func (c *comm) broken(f *backend.Fault) bool {
	if !c.brk.CompareAndSwap(nil, f) {
		return false
	}
	c.e.dropWhere(func(o *op) error {
		switch {
		case o.comm != c || o.state == opStopped:
			return nil
		case o.state == opPosted && o.node.Env.Tag < 0 && o.node.Env.Tag != backend.AnyTag, o.state != opPosted && o.tag < 0:
			return f
		}
		return brokenBy(f)
	})
	c.e.wakeOthers()
	return true
}

// Broken implements backend.Comm.
func (c *comm) Broken() error {
	if f := c.brk.Load(); f != nil {
		return f
	}
	return nil
}

// Abort implements backend.Comm.
func (c *comm) Abort(code int) error {
	e := c.e
	e.mu.Lock()
	e.fail(e.me, backend.ErrPeerLost, fmt.Sprintf("rank %d aborted the job with code %d", e.me, code))
	e.unlock()
	e.wakeAll()
	return nil
}

// Close implements backend.Comm.
func (c *comm) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	e := c.e
	e.mu.Lock()
	delete(e.comms, c.id)
	e.closed[c.id] = struct{}{}
	e.dropWhere(func(o *op) error {
		if o.comm == c && o.note == nil {
			return &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}
		}
		return nil
	})
	e.arrived.Each(func(n *match.Node) bool {
		if n.Env.Ctx == c.id {
			m := n.Owner.(*msg)
			e.arrived.Remove(n)
			if m.desc != nil {
				e.refuse(m.from, m.desc, m.gen)
			}
			e.putMsg(m)
		}
		return true
	})
	if !e.isClosed {
		c.boards[c.rank].id.Store(0)
		e.boards[c.slot] = false
	}
	e.unlock()
	e.wakeAll()
	if c.isWorld {
		e.leave()
	}
	return nil
}

// leave ends this rank's part of the job.
func (e *engine) leave() {
	e.flush()
	e.mu.Lock()
	for _, c := range e.comms {
		c.closed.Store(true)
	}
	e.area[e.me].left.Store(1)
	e.ctl.left.Add(1)
	for r := range e.area {
		if r != e.me {
			e.ring(r)
		}
	}
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "the job was left"})
	e.isClosed = true
	e.unlock()
	e.wakeAll()
	if e.watch != nil {
		e.watch.Close()
	}
}

// flush gives notices of broken communicators a short time to get into full rings.
func (e *engine) flush() {
	for start := time.Now(); time.Since(start) < 100*time.Millisecond; shmem.Yield() {
		e.mu.Lock()
		e.progress()
		notes := slices.ContainsFunc(e.queued, func(o *op) bool { return o.note != nil })
		e.unlock()
		if !notes || e.fault.Load() != nil {
			return
		}
	}
}
