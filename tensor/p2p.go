package tensor

import (
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Send sends t to dest. It returns when t's memory can be reused, which may be before the message
// is received. The tensor's type and shape travel with it. On a device, t is read after the work
// that is in its stream when Send is called.
//
// Not collective: dest receives the message with [Recv] or a similar function.
//
// Tensors: contiguous, on any device.
//
// Errors: [cohort.ErrRank], [cohort.ErrTag] for wrong arguments; [cohort.ErrBuffer] for a tensor
// that is not contiguous; those of the device's driver, which the receiver gets as well.
//
// Deadline: [cohort.ErrTimeout] here, and for the matching receive. On mpi a send that has started
// cannot be canceled: no more messages are possible on c, and a receive in the middle of the
// message waits until its own deadline. A library that accepts device memory may read t until the
// job ends, so do not close it.
func Send[T cohort.Number](c *Comm, t *Tensor[T], dest, tag int) error {
	p, err := t.untyped()
	return c.send("send", p, dest, tag, err)
}

// Isend starts a [Send].
//
// Not collective, as [Send].
//
// Tensors: t must not be written until the handle is done.
//
// Errors, Deadline: as for [Send]; wrong arguments are reported at once, everything else by the
// handle.
func Isend[T cohort.Number](c *Comm, t *Tensor[T], dest, tag int) (*Handle, error) {
	p, err := t.untyped()
	return c.isend(p, dest, tag, err)
}

// Recv receives a message into t, which must have its type and shape. source may be
// [cohort.AnySource] and tag may be [cohort.AnyTag]. Messages from one rank with one tag arrive in
// the order sent. On a device, t is written after the work that is in its stream when Recv is
// called, and every stream sees the data when Recv returns.
//
// Not collective: the two ranks take part. The status holds the source, the tag and the size of the elements in
// bytes.
//
// Tensors: contiguous, on any device.
//
// Errors: [cohort.ErrMismatch] if the message has another type or shape than t; the error names
// both, the message is dropped, t is unchanged, and the status gives the source. [cohort.ErrRank],
// [cohort.ErrTag], [cohort.ErrBuffer] for wrong arguments; those of the device's driver, in which
// case the message is dropped; the sender's error if it stopped sending.
//
// Deadline: [cohort.ErrTimeout]. The receive is canceled, or, in the middle of a message, the rest
// is dropped; c stays usable. On mpi the library may keep a receive in the middle of a message: no
// more messages are possible on c. A library that accepts device memory may write to t until the
// job ends, so do not close it.
func Recv[T cohort.Number](c *Comm, t *Tensor[T], source, tag int) (cohort.Status, error) {
	p, err := t.untyped()
	return c.recv(p, source, tag, err)
}

// Irecv starts a [Recv]. The handle's Wait returns the status.
//
// Not collective, as [Recv].
//
// Tensors: t must not be used until the handle is done.
//
// Errors, Deadline: as for [Recv]; wrong arguments are reported at once, everything else by the
// handle.
func Irecv[T cohort.Number](c *Comm, t *Tensor[T], source, tag int) (*Handle, error) {
	p, err := t.untyped()
	h, _, err := c.irecv("irecv", p, source, tag, err)
	return h, err
}

// RecvAppend receives a message and appends it to dst, which may be nil. The message's shape is that
// of dst apart from the first dimension, in which the two are joined. If dst is nil or has no
// elements, the message may have any shape, and the result has it. From [cohort.ProcNull] nothing
// is appended.
//
// Not collective: the two ranks take part.
//
// Tensors: dst is contiguous, on any device; nil stands for the processor. The result is on the same
// device. It shares the memory of dst if that has room behind dst's elements: the room of
// x.Sub(0, 0, 0) is all of x, and that of [Of] a slice is the slice's capacity. Otherwise it has new
// memory with a copy of dst's elements; on a device, close it as well as dst.
//
// Errors: those of [Recv]; [cohort.ErrMismatch] if the message has another type than T, or a shape
// that cannot be joined to dst's; [cohort.ErrAlloc] if memory is missing. The message is then
// dropped. After an error the result is dst, and the room behind its elements may have been written.
//
// Deadline: [cohort.ErrTimeout], as for [Recv]. New device memory that the library may still write
// to is never freed.
func RecvAppend[T cohort.Number](c *Comm, dst *Tensor[T], source, tag int) (*Tensor[T], cohort.Status, error) {
	from := dst
	if dst == nil {
		from = of([]T{}, []int{0})
	}
	_, err := from.untyped()
	all, kind := from, kindOf[T]()
	st, inUse, err := c.recvAppend(source, tag, err, func(l *envelope) (untyped, error) {
		shape := joined(from.shape, from.n, l.shape())
		if l.kind != kind || shape == nil {
			return untyped{}, fault(cohort.ErrMismatch, "the message is %v%v, which cannot be appended to %v; the message was dropped",
				l.kind, slices.Clone(l.shape()), from)
		}
		longer, err := from.extended(shape)
		if err != nil {
			return untyped{}, err
		}
		all = longer
		return all.view(from.n, l.shape(), rowMajor(l.shape())).untyped()
	})
	if err != nil {
		if all.own != from.own && !inUse {
			_ = all.Close() // the first error matters more
		}
		return dst, st, err
	}
	return all, st, nil
}

// joined returns the shape of a tensor with a message behind it, or nil if they cannot be joined.
func joined(shape []int, elements int, message []int) []int {
	all := append([]int{}, message...)
	if elements == 0 {
		return all
	}
	if len(shape) == 0 || len(shape) != len(message) || !slices.Equal(shape[1:], message[1:]) {
		return nil
	}
	all[0] += shape[0]
	return all
}

// Sendrecv sends one tensor to dest and receives another from source at the same time, so that
// ranks that exchange messages do not deadlock.
//
// Not collective: the ranks concerned take part. A plain [Recv] or [Send] of another rank may match either half.
//
// Tensors: contiguous, on any device; send and recv must not overlap.
//
// Errors: those of [Send] and [Recv]; [cohort.ErrBuffer] for tensors that overlap.
//
// Deadline: as for [Send] and [Recv].
func Sendrecv[T cohort.Number](c *Comm, send *Tensor[T], dest, sendTag int, recv *Tensor[T], source, recvTag int) (cohort.Status, error) {
	s, err := send.untyped()
	if err != nil {
		return cohort.Status{}, c.opError("sendrecv", dest, sendTag, err)
	}
	r, err := recv.untyped()
	if err == nil && overlap(send, recv) {
		err = fault(cohort.ErrBuffer, "send and recv overlap; pass separate tensors")
	}
	return c.sendrecv(s, dest, sendTag, r, source, recvTag, err)
}

// outgoing is a message that this rank sends.
type outgoing struct {
	c     *Comm
	m     *messages
	l     *envelope
	p     untyped
	after mark // the work that has written p
	alone bool // the envelope has all of the payload
}

// outgoing begins a send; wrong is an error found by the typed function.
func (c *Comm) outgoing(p untyped, dest, tag int, wrong error) (o outgoing, err error) {
	m, err := c.messaging(wrong)
	if err != nil {
		return o, err
	}
	o = outgoing{c: c, m: m, l: newSend(dest, tag), p: p, alone: p.fits() || dest == cohort.ProcNull}
	if err = m.begin(o.l, !o.alone); err != nil {
		return o, err
	}
	if o.after, err = p.ready(); err != nil {
		m.done(o.l, true)
		return o, err
	}
	return o, nil
}

// end sends what the envelope does not have, unless sending the envelope failed with err.
func (o *outgoing) end(err error) error {
	if err == nil && !o.alone {
		f := payload{c: o.c, peer: o.l.peer, tag: o.l.number, size: o.p.size, piece: o.m.k.cfg.Chunk}
		err = f.sendAll(&o.p, o.after)
	}
	o.after.forget()
	o.m.done(o.l, err == nil)
	return err
}

func (c *Comm) send(op string, p untyped, dest, tag int, wrong error) error {
	o, err := c.outgoing(p, dest, tag, wrong)
	if err == nil {
		err = o.end(cohort.Send(c.head, o.l.write(&o.p, o.m.k.cfg.Chunk), dest, tag))
	}
	return c.opError(op, dest, tag, err)
}

func (c *Comm) isend(p untyped, dest, tag int, wrong error) (*Handle, error) {
	o, err := c.outgoing(p, dest, tag, wrong)
	if err != nil {
		return nil, c.opError("isend", dest, tag, err)
	}
	q, err := cohort.Isend(c.head, o.l.write(&o.p, o.m.k.cfg.Chunk), dest, tag)
	if err != nil {
		return nil, c.opError("isend", dest, tag, o.end(err))
	}
	h := newHandle()
	end := func(err error) { h.finish(noStatus, c.opError("isend", dest, tag, o.end(err))) }
	if o.alone {
		if _, done, err := q.Test(); done {
			end(err)
			return h, nil
		}
	}
	go func() {
		_, err := q.Wait()
		end(err)
	}()
	return h, nil
}

func (c *Comm) recv(p untyped, source, tag int, wrong error) (_ cohort.Status, err error) {
	defer func() { err = c.opError("recv", source, tag, err) }()
	m, err := c.messaging(wrong)
	if err != nil {
		return cohort.Status{}, err
	}
	if source == cohort.ProcNull {
		return cohort.Recv[byte](c.head, nil, source, tag)
	}
	after, err := p.ready()
	if err != nil {
		return cohort.Status{}, err
	}
	defer after.forget()
	l, err := c.await(m, source, tag)
	if err != nil {
		return cohort.Status{}, err
	}
	return c.take(m, l, &p, after)
}

// take receives a message whose envelope has arrived into p, after the given work of p's device. It
// drops a message that does not match p.
func (c *Comm) take(m *messages, l *envelope, p *untyped, after mark) (cohort.Status, error) {
	st, err := cohort.NewStatus(l.peer, l.tag, l.size), l.matches(p)
	f := payload{c: c, peer: l.peer, tag: l.number, size: l.size, piece: l.piece}
	switch {
	case err != nil && l.inside == nil:
		f.drop()
	case err != nil || l.size == 0:
	case l.inside == nil:
		err = f.recvAll(p, after)
	case p.dev == nil:
		copy(p.host, l.inside)
	default:
		inside := func(b []byte) error { copy(b, l.inside); return nil }
		if err = f.store(p, after, inside); err != nil {
			err = p.named(err)
		}
	}
	m.done(l, true)
	return st, err
}

// irecv starts a receive. The function it returns cancels the receive if no message has arrived.
func (c *Comm) irecv(op string, p untyped, source, tag int, wrong error) (_ *Handle, cancel func(), err error) {
	defer func() { err = c.opError(op, source, tag, err) }()
	m, err := c.messaging(wrong)
	if err != nil {
		return nil, nil, err
	}
	h := newHandle()
	if source == cohort.ProcNull {
		st, err := cohort.Recv[byte](c.head, nil, source, tag)
		if err != nil {
			return nil, nil, err
		}
		h.finish(st, nil)
		return h, func() {}, nil
	}
	after, err := p.ready()
	if err != nil {
		return nil, nil, err
	}
	l, q, err := c.post(m, source, tag)
	if err != nil {
		after.forget()
		return nil, nil, err
	}
	end := func(err error) {
		st := noStatus
		if err == nil {
			st, err = c.take(m, l, &p, after)
		}
		after.forget()
		h.finish(st, c.opError(op, source, tag, err))
	}
	if st, done, err := q.Test(); done {
		if err = m.arrived(l, st, err); err == nil && l.inside != nil && p.dev == nil {
			end(nil)
		} else {
			go end(err)
		}
		return h, func() {}, nil
	}
	go func() {
		st, err := q.Wait()
		end(m.arrived(l, st, err))
	}()
	return h, func() { _ = q.Cancel() }, nil
}

// recvAppend receives a message into the tensor that place returns for its envelope. inUse reports
// that the library may still be writing to it.
func (c *Comm) recvAppend(source, tag int, wrong error, place func(*envelope) (untyped, error)) (st cohort.Status, inUse bool, err error) {
	defer func() { err = c.opError("recvappend", source, tag, err) }()
	m, err := c.messaging(wrong)
	if err != nil {
		return st, false, err
	}
	if source == cohort.ProcNull {
		st, err = cohort.Recv[byte](c.head, nil, source, tag)
		return st, false, err
	}
	l, err := c.await(m, source, tag)
	if err != nil {
		return cohort.Status{}, false, err
	}
	p, err := place(l)
	st, err = c.accept(m, l, &p, err)
	return st, p.inUse, err
}

// accept is take after the work in p's stream. If err is not nil, it drops the message.
func (c *Comm) accept(m *messages, l *envelope, p *untyped, err error) (cohort.Status, error) {
	var after mark
	if err == nil {
		after, err = p.ready()
	}
	if err != nil {
		none := untyped{} // matches nothing, so that the message is dropped
		st, _ := c.take(m, l, &none, after)
		return st, err
	}
	defer after.forget()
	return c.take(m, l, p, after)
}

func (c *Comm) sendrecv(s untyped, dest, sendTag int, r untyped, source, recvTag int, err error) (cohort.Status, error) {
	if _, err = c.messaging(err); err == nil { // a message that the receive gets would be lost with the send
		_, err = cohort.SendInit[byte](c.head, nil, dest, sendTag)
	}
	if err != nil {
		return cohort.Status{}, c.opError("sendrecv", dest, sendTag, err)
	}
	h, cancel, err := c.irecv("sendrecv", r, source, recvTag, nil)
	if err != nil {
		return cohort.Status{}, err
	}
	if err := c.send("sendrecv", s, dest, sendTag, nil); err != nil {
		cancel()
		st, _ := h.Wait() // the error of the send matters more
		return st, err
	}
	return h.Wait()
}
