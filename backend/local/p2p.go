package local

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	copyMax   = 16 << 10 // longest message that is copied if its receive is not posted
	storedMax = 4 << 20  // most bytes of such copies for a rank; then senders wait

	shortMax = 1 << 10 // longest message that is copied from the store under the lock, and waited for at a deadline
	freeMax  = 64      // records that a rank keeps for such messages
)

// Send implements backend.Comm.
func (c *Comm) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	if c.pass(buf, dest, tag, mode) {
		return nil
	}
	o, err := c.enqueue(nil, buf, dest, tag, mode)
	if o == nil {
		return err
	}
	_, err = c.finish(b, o)
	return err
}

// Isend implements backend.Comm.
func (c *Comm) Isend(r *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if r.Notify == nil && c.pass(buf, dest, tag, mode) {
		r.FinishAtOnce(backend.Status{}, nil)
		return
	}
	o := c.request(r, buf)
	if left, err := c.enqueue(o, buf, dest, tag, mode); left == nil {
		o.complete(backend.Status{}, err)
	}
}

// envelope returns the envelope of a message.
func (c *Comm) envelope(tag int, mode backend.Mode) match.Env {
	return match.Env{Ctx: c.group.key.id, Source: int32(c.me.id), Tag: int32(tag), Elems: mode.Elems}
}

// pass sends buf without the lock of the queues, if that is possible. The send is complete then.
func (c *Comm) pass(buf []byte, dest, tag int, mode backend.Mode) bool {
	to := c.peer(dest)
	return to.cell.give(to.ring, c.envelope(tag, mode), buf) ||
		to.ring != nil && tag >= 0 && !mode.Synchronous && to.ring.leave(c, buf, dest, tag, mode.Elems)
}

// enqueue sends buf if the message can be delivered or copied at once. Otherwise it
// leaves the record of the send, o or a new one, in the queue of dest and returns it.
func (c *Comm) enqueue(o *op, buf []byte, dest, tag int, mode backend.Mode) (*op, error) {
	g, to, env := c.group, c.peer(dest), c.envelope(tag, mode)
	to.lock()
	if err := c.unusable(); err != nil {
		to.mu.Unlock()
		return nil, err
	}
	if n := to.posted.TakePosted(env); n != nil {
		r := owner(n)
		r.long = len(buf) > shortMax
		to.mu.Unlock()
		r.deliver(env, buf)
		return nil, nil
	}
	if g.ends[dest].gone.Load() {
		to.mu.Unlock()
		return nil, g.left(dest)
	}
	copied := !mode.Synchronous && len(buf) <= copyMax && to.stored+len(buf) <= storedMax
	if copied {
		o = to.copyOf(buf)
	} else {
		if o == nil {
			o = c.op(buf)
		}
		o.copied = false
	}
	o.node.Env, o.at, o.send = env, to, true
	to.arrived.Push(&o.node)
	to.mu.Unlock()
	to.crew.Ask() // probes
	if tag < 0 {
		c.suspect(dest, tag, buf)
	}
	if copied {
		return nil, nil
	}
	return o, nil
}

// Recv implements backend.Comm.
func (c *Comm) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	o, st, err := c.accept(nil, buf, source, tag)
	if o == nil {
		return st, err
	}
	return c.finish(b, o)
}

// Irecv implements backend.Comm.
func (c *Comm) Irecv(r *backend.Request, buf []byte, source, tag int) {
	o := c.request(r, buf)
	if left, st, err := c.accept(o, buf, source, tag); left == nil {
		o.complete(st, err)
	}
}

// accept receives a message that has arrived, if there is one or can be none. Otherwise it posts the record of
// the receive, o or a new one, and returns it. If o is nil, a message may come while the receive lingers in the cell.
func (c *Comm) accept(o *op, buf []byte, source, tag int) (*op, backend.Status, error) {
	env := c.pattern(source, tag)
	if o != nil && o.req.Notify != nil && (tag >= 0 || tag == backend.AnyTag) && !c.notifies.Load() {
		c.notifies.Store(true)
	}
	for lingers := o == nil && len(buf) <= cellMax && c.group.job.spins > 0; ; lingers = false {
		c.me.lockOnly()
		err := c.unusable()
		if err == nil {
			absent := c.group.absent(c.rank, env)
			if absent || c.notifies.Load() {
				c.me.drain(nil) // a rank may have sent the message before it left
			}
			if n := c.me.arrived.TakeArrived(env); n != nil {
				st, err := c.take(owner(n), buf)
				return nil, st, err
			}
			err = c.group.absence(absent, env)
		}
		if err != nil {
			c.me.mu.Unlock()
			return nil, backend.Status{}, err
		}
		if !lingers || c.me.posted.Len() > 0 || c.me.cell.word.Load()%cellStates != cellEmpty || c.me.ring.some() {
			break
		}
		if st, err, got := c.linger(env, buf); got {
			return nil, st, err
		}
	}
	if o == nil {
		o = c.op(buf)
	}
	o.node.Env, o.at, o.send = env, c.me, false
	if c.me.posted.Push(&o.node); c.me.posted.Len() == 1 { // else the message for another receive has probably not come yet
		c.me.drain(o)
	}
	c.me.mu.Unlock()
	return o, backend.Status{}, nil
}

// pattern returns the pattern of a receive from source.
func (c *Comm) pattern(source, tag int) match.Env {
	return c.group.Pattern(c.group.key.id, source, tag)
}

// take copies the message m, which is in no queue any more, to buf and releases it. It
// unlocks c.me.mu.
func (c *Comm) take(m *op, buf []byte) (backend.Status, error) {
	st, err := c.group.received(m.node.Env, len(m.buf), len(buf))
	if !m.copied {
		m.long = len(m.buf) > shortMax
		c.me.mu.Unlock()
		word.Copy(buf, m.buf)
		m.complete(backend.Status{}, nil)
		return st, err
	}
	if len(m.buf) > shortMax {
		c.me.mu.Unlock()
		copy(buf, m.buf)
		c.me.mu.Lock()
	} else {
		copy(buf, m.buf)
	}
	c.me.drop(m)
	c.me.mu.Unlock()
	return st, err
}

// deliver completes the receive o, which is in no queue any more, with a message.
func (o *op) deliver(env match.Env, msg []byte) {
	st, err := o.c.group.received(env, len(msg), len(o.buf))
	word.Copy(o.buf, msg)
	o.complete(st, err)
}

// received returns the result of receiving a message into room bytes.
func (g *group) received(env match.Env, bytes, room int) (backend.Status, error) {
	st := backend.Status{Source: g.RankOf(int(env.Source)), Tag: int(env.Tag), Bytes: bytes, Elems: env.Elems}
	if bytes > room {
		return st, &backend.TooLong{Bytes: bytes, Room: room}
	}
	return st, nil
}

// copyOf returns a record with a copy of msg. r.mu is held.
func (r *rank) copyOf(msg []byte) *op {
	m := r.free
	if m == nil {
		m = ops.Get().(*op)
	} else {
		r.free, m.next = m.next, nil
		r.frees--
	}
	m.store = append(m.store[:0], msg...)
	m.buf, m.send, m.copied = m.store, true, true
	r.stored += len(msg)
	return m
}

// drop gives back a record of copyOf. r.mu is held.
func (r *rank) drop(m *op) {
	r.stored -= len(m.buf)
	m.buf, m.copied = nil, false
	if r.frees < freeMax && cap(m.store) <= shortMax {
		r.free, m.next = m, r.free
		r.frees++
		return
	}
	ops.Put(m)
}

// Cancel implements backend.Comm.
func (c *Comm) Cancel(r *backend.Request) bool {
	o, ok := r.Impl.(*op)
	if !ok || !r.Active() {
		return false
	}
	if o.withdraw(&backend.Fault{Sentinel: backend.ErrCanceled}) {
		return true
	}
	if r.Notify == nil && !o.long {
		_ = c.Await(nil, r) // the goroutine that has matched it copies a short message
	}
	return false
}

// explain adds what o was waiting for to the error that ended the wait.
func (o *op) explain(err error) error {
	g, env := o.c.group, o.node.Env
	what := "a message"
	if env.Tag != backend.AnyTag {
		what += fmt.Sprintf(" with tag %d", env.Tag)
	}
	switch {
	case o.send:
		return backend.While(err, fmt.Sprintf("rank %d has not received the message with tag %d", g.RankOf(o.at.id), env.Tag))
	case env.Source == backend.AnySource:
		return backend.While(err, "no rank has sent "+what)
	}
	return backend.While(err, fmt.Sprintf("rank %d has not sent %s", g.RankOf(int(env.Source)), what))
}
