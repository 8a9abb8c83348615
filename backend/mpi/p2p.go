//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// Send implements backend.Comm.
func (c *comm) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	err := c.enter()
	if err != nil {
		return err
	}
	sent := 0 // messages that were not counted elsewhere
	switch {
	case dest == c.rank && !mode.Synchronous && len(buf) <= selfBytes:
		err = c.sendSelf(buf, tag)
	case c.requests(b):
		err = c.sendLimited(b, buf, dest, tag, mode)
	default:
		on, t := c.on(tag)
		if code := on.Send(buf, dest, t, mode); code != 0 {
			c.uncounted(code)
			err = c.fault(code, buf)
		} else {
			sent = 1
		}
		c.p.rest(len(buf))
	}
	c.gate.LeaveWith(sent)
	return err
}

// requests reports whether a blocking operation must be a request that the caller waits for here, not
// a call that blocks in the library. Such a call would keep other goroutines out, could not end early,
// and would stop what only poll advances.
func (c *comm) requests(b *backend.Bound) bool {
	return c.p.job.polled || b.Limited() || b != nil && b.Ends || c.p.engine.needsPoll()
}

// selfBytes is the maximum length of a message to oneself that is copied and kept until received.
const selfBytes = 1 << 16

// sendSelf sends to the calling rank. MPICH's own call waits for the receive, which the same
// goroutine may be about to post, so sendSelf sends a copy and does not wait.
func (c *comm) sendSelf(buf []byte, tag int) error {
	o := &op{c: c, buf: append([]byte(nil), buf...)}
	on, t := c.on(tag)
	var st libmpi.Status
	code := on.Isend(o.buf, c.rank, t, backend.Standard, &o.h, &st)
	if code != 0 {
		c.uncounted(code)
		o.complete(backend.Status{}, nil)
		return c.fault(code)
	}
	c.started(o, code, &st)
	return nil
}

// Recv implements backend.Comm.
func (c *comm) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	err := c.enter()
	if err != nil {
		return backend.Status{}, err
	}
	if c.requests(b) {
		st, err := c.recvLimited(b, buf, source, tag)
		c.leave()
		return st, err
	}
	c.p.rest(len(buf)) // before the call, which waits for the message anyway
	on, t := c.on(tag)
	var st libmpi.Status
	var code libmpi.Code
	if c.p.lib.guard {
		code = on.RecvGuarded(buf, source, t, &st)
	} else {
		code = on.Recv(buf, source, t, &st)
	}
	received := -1
	if code != 0 {
		if err = c.fault(code, buf); backend.Code(err) != truncateCode {
			received = 0
			c.uncounted(code)
		}
	}
	c.gate.LeaveWith(received)
	if err = c.fits(err, &st, len(buf)); err != nil && backend.Code(err) != truncateCode {
		return backend.Status{}, err
	}
	return backend.Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: int(st.Bytes)}, err
}

// fits returns the error of a receive that the library ended with err. A message longer than the
// buffer is ErrTruncate, even if the library reports its length and no error.
func (c *comm) fits(err error, st *libmpi.Status, room int) error {
	switch {
	case err == nil && st.Bytes <= int64(room), err != nil && backend.Code(err) != truncateCode:
		return err
	case err != nil && c.p.lib.quirks.Has(mpiquirks.QuirkNoLength):
		st.Bytes = -1
	}
	if st.Bytes <= int64(room) { // what was received
		return &backend.TooLong{Bytes: -1, Room: room}
	}
	return &backend.TooLong{Bytes: int(st.Bytes), Room: room}
}

// sendLimited is Send as a request. MPI cannot cancel a send: if the time is up first, the
// communicator is broken, and the buffer stays pinned until the message is received.
func (c *comm) sendLimited(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	r := c.p.engine.request()
	r.Begin()
	c.Isend(r, buf, dest, tag, mode)
	if err := c.Await(b, r); err != nil && c.p.engine.giveUp(r) {
		c.Break(err)
		return err
	}
	err := r.Err
	c.p.engine.done(r)
	return err
}

func (c *comm) recvLimited(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	r := c.p.engine.request()
	r.Begin()
	c.Irecv(r, buf, source, tag)
	if err := c.Await(b, r); err != nil {
		c.Cancel(r)
		if c.Await(&backend.Bound{Timeout: backend.Grace}, r) != nil && c.p.engine.giveUp(r) {
			c.Break(err)
			return backend.Status{}, err
		}
		if backend.Code(r.Err) == canceled {
			c.p.engine.done(r)
			return backend.Status{}, err
		}
	}
	st, err := r.Status, r.Err
	c.p.engine.done(r)
	return st, err
}

// Isend implements backend.Comm.
func (c *comm) Isend(r *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if err := c.enter(); err != nil {
		r.Complete(backend.Status{}, err)
		return
	}
	defer c.leave()
	o := c.p.engine.op(r, c, buf, tag)
	on, t := c.on(tag)
	var st libmpi.Status
	c.p.rest(len(buf))
	code := on.Isend(buf, dest, t, mode, &o.h, &st)
	c.started(o, code, &st)
}

// Irecv implements backend.Comm.
func (c *comm) Irecv(r *backend.Request, buf []byte, source, tag int) {
	if err := c.enter(); err != nil {
		r.Complete(backend.Status{}, err)
		return
	}
	defer c.leave()
	o := c.p.engine.op(r, c, buf, tag)
	on, t := c.on(tag)
	o.receives, o.source, o.tag = true, source, t
	c.p.rest(len(buf))
	if c.p.lib.guard {
		c.post(o)
		return
	}
	var st libmpi.Status
	code := on.Irecv(buf, source, t, &o.h, &st)
	c.started(o, code, &st)
}

// started handles an operation that a call has begun: it is complete, failed or in progress.
func (c *comm) started(o *op, code libmpi.Code, st *libmpi.Status) {
	if !o.receives && code == 0 {
		c.gate.Count(1)
	}
	switch {
	case code == libmpi.Ended, code != 0 && st.Flag == 0:
		c.uncounted(code)
		o.complete(backend.Status{}, c.fault(code, o.buf, o.long))
	case st.Flag != 0:
		var err error
		if code != 0 {
			err = libmpi.Error(code)
		}
		o.finish(st, err)
	default:
		c.p.engine.watch(o)
		if err := c.usable(); err != nil { // broken meanwhile
			c.drop(err)
		}
	}
}

// Imrecv implements backend.Comm.
func (c *comm) Imrecv(r *backend.Request, m backend.Matched, buf []byte) {
	msg := m.(*matched)
	if err := c.enter(); err != nil {
		r.Complete(backend.Status{}, err)
		return
	}
	defer c.leave()
	o := c.p.engine.op(r, c, buf, msg.st.Tag)
	o.receives = true
	c.taken.remove(msg)
	c.gate.Count(-1)
	c.receive(o, msg.m, int64(msg.st.Bytes))
}

// receive starts the receive of a matched message, which has been counted. A message that is too long is
// received into its own memory.
func (c *comm) receive(o *op, m libmpi.Message, bytes int64) {
	o.matched = true
	into := o.buf
	if bytes > int64(len(into)) {
		o.long = make([]byte, bytes)
		into = o.long
	}
	var st libmpi.Status
	code := m.Imrecv(into, &o.h, &st)
	c.started(o, code, &st)
}

// exchangeSpins is how often an exchange tests its messages before they become normal requests.
const exchangeSpins = 100

// Flush implements backend.Collectives.
func (c *comm) Flush() {}

// Exchange implements backend.Collectives.
func (c *comm) Exchange(recv, send *backend.Request, in, out []byte, source, dest, tag int) {
	err := c.enter()
	if err != nil {
		recv.Complete(backend.Status{}, err)
		send.Complete(backend.Status{}, err)
		return
	}
	defer c.leave()
	if c.p.job.polled || c.p.engine.queued.Load() > 0 {
		c.Irecv(recv, in, source, tag)
		c.Isend(send, out, dest, tag, backend.Standard)
		return
	}
	var h [2]libmpi.Request
	var st [2]libmpi.Status
	// Not guarded: messages with this tag are never longer.
	if code := c.ctl.Exchange(out, dest, in, source, c.p.tags.of(tag), exchangeSpins, &h, &st); code != 0 {
		st[0].Error, st[1].Error = code, code
	}
	if st[0].Flag != 0 && st[1].Flag != 0 { // the usual case: one is sent, and one received
		send.Complete(backend.Status{}, nil)
		recv.Complete(backend.Status{Source: source, Tag: tag, Bytes: int(st[0].Bytes)}, nil)
		return
	}
	e := &c.p.engine
	r, s := e.op(recv, c, in, tag), e.op(send, c, out, tag)
	r.receives, r.source, r.h, s.h = true, source, h[0], h[1]
	c.started(s, st[1].Error, &st[1])
	c.started(r, st[0].Error, &st[0])
}
