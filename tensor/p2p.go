package tensor

import (
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Send sends t to dest and returns when its memory can be used again, which may be before it is received.
// The type and the shape of the tensor travel with it. On a device it is read after the work that is in
// its stream when Send is called.
//
// Local to the two ranks: dest receives it with [Recv] or its like.
//
// Errors: [cohort.ErrRank], [cohort.ErrTag] for bad arguments; [cohort.ErrBuffer] for a tensor that is not
// contiguous; what the device says, which the receiver gets as well.
//
// Deadline: [cohort.ErrTimeout]; the receive that gets or got the message gives that, too. On mpi a send that
// has begun cannot be taken back: there are then no messages of c any more, as with slices, and a receive
// that is in the middle of the message waits until its own deadline. A library that takes device memory may
// read that of t until the job ends: do not close it.
func Send[T cohort.Number](c *Comm, t *Tensor[T], dest, tag int) error {
	p, err := t.parcel()
	return c.send("send", p, dest, tag, err)
}

// Isend starts a [Send].
//
// Buffers: t must not be written until the handle is done.
func Isend[T cohort.Number](c *Comm, t *Tensor[T], dest, tag int) (*Handle, error) {
	p, err := t.parcel()
	return c.isend("isend", p, dest, tag, err)
}

// Recv receives a tensor from source, or [cohort.AnySource], with a tag, or [cohort.AnyTag], into t, which
// has its type and shape. Messages from one rank with one tag are received in the order sent. On a device
// t is written after the work that is in its stream when Recv is called, and what was received is there
// for every stream when it returns.
//
// Local to the two ranks. The status has the source, the tag, and the bytes of the elements.
//
// Errors: [cohort.ErrMismatch] that names both if the message has another type or shape than t, which stays
// as it was: the message is dropped, and the status says where it came from; [cohort.ErrRank],
// [cohort.ErrTag], [cohort.ErrBuffer] for bad arguments; what the device says, the message being dropped;
// what ended the send if the sender has given up.
//
// Deadline: [cohort.ErrTimeout]; the receive is taken back, or, if it was in the middle of a message, the
// rest of that is dropped. The communicator stays usable. On mpi the library may keep a receive in the middle of
// a message: there are then no messages of c any more, and one that takes device memory may write to that of t
// until the job ends: do not close it.
func Recv[T cohort.Number](c *Comm, t *Tensor[T], source, tag int) (cohort.Status, error) {
	p, err := t.parcel()
	return c.recv("recv", p, source, tag, err)
}

// Irecv starts a [Recv]. The handle has the status.
//
// Buffers: t must not be used until the handle is done.
func Irecv[T cohort.Number](c *Comm, t *Tensor[T], source, tag int) (*Handle, error) {
	p, err := t.parcel()
	return c.irecv("irecv", p, source, tag, err)
}

// RecvAlloc receives a tensor of any shape into a new one on a device, or on [CPU], which nil is too. Close
// gives it back. From [cohort.ProcNull] it is one without elements.
//
// Local to the two ranks.
//
// Errors: those of [Recv]; [cohort.ErrMismatch] that names both if the message has another type than T;
// [cohort.ErrAlloc] if there is no memory for it. The message is then dropped.
//
// Deadline: [cohort.ErrTimeout], as for [Recv]. Device memory that the library may still write to is lost.
func RecvAlloc[T cohort.Number](c *Comm, d *Device, source, tag int) (*Tensor[T], cohort.Status, error) {
	var t *Tensor[T]
	kind := kindOf[T]()
	st, lent, err := c.recvAlloc(source, tag, func(l *letter) (p parcel, err error) {
		if l == nil {
			t, err = create[T](d, []int{0})
			return p, err
		}
		if l.kind != kind {
			return p, fault(cohort.ErrMismatch, "the message has %v%v, and %v is to be received; it was dropped", l.kind, slices.Clone(l.shape()), kind)
		}
		if t, err = create[T](d, l.shape()); err != nil {
			return p, err
		}
		return t.parcel()
	})
	if err != nil {
		if !lent { // else it is lost
			_ = t.Close() // nothing else is wrong with it
		}
		return nil, st, err
	}
	return t, st, nil
}

// Sendrecv sends one tensor to dest and receives another one from source at the same time, so that ranks
// that exchange messages do not wait for each other in a circle.
//
// Local to the ranks concerned; a Sendrecv can be received by a [Recv] and the other way round.
//
// Buffers: send and recv must not overlap.
//
// Errors: those of [Send] and [Recv]; [cohort.ErrBuffer] for tensors that overlap.
//
// Deadline: as for [Send] and [Recv].
func Sendrecv[T cohort.Number](c *Comm, send *Tensor[T], dest, sendTag int, recv *Tensor[T], source, recvTag int) (cohort.Status, error) {
	s, err := send.parcel()
	if err != nil {
		return cohort.Status{}, c.wrong("sendrecv", dest, sendTag, err)
	}
	r, err := recv.parcel()
	return c.sendrecv(s, dest, sendTag, r, source, recvTag, err)
}

// send is [Send]; err is what the typed function has found wrong.
func (c *Comm) send(op string, p parcel, dest, tag int, err error) error {
	m, no := c.messaging()
	if no != nil {
		err = no
	}
	if err == nil {
		err = c.sendNow(m, &p, dest, tag)
	}
	if err != nil {
		return c.wrong(op, dest, tag, err)
	}
	return nil
}

func (c *Comm) sendNow(m *messages, p *parcel, dest, tag int) error {
	inside := p.fits()
	number, err := m.begin(dest, !inside)
	if err != nil {
		return err
	}
	defer m.end()
	after, err := p.ready()
	if err != nil {
		return err
	}
	defer after.forget()
	l := newLetter()
	if err = cohort.Send(c.head, l.write(p, m.k.cfg.Chunk, number), dest, tag); err != nil {
		return err
	}
	l.free()
	if inside || dest == cohort.ProcNull {
		return nil
	}
	f := payload{c: c, peer: dest, tag: number, size: p.size, piece: m.k.cfg.Chunk}
	return f.sendAll(p, after)
}

func (c *Comm) isend(op string, p parcel, dest, tag int, err error) (*Handle, error) {
	m, no := c.messaging()
	if no != nil {
		err = no
	}
	var h *Handle
	if err == nil {
		h, err = c.sendLater(op, m, p, dest, tag)
	}
	if err != nil {
		return nil, c.wrong(op, dest, tag, err)
	}
	return h, nil
}

func (c *Comm) sendLater(op string, m *messages, p parcel, dest, tag int) (*Handle, error) {
	alone := p.fits() || dest == cohort.ProcNull
	number, err := m.begin(dest, !alone)
	if err != nil {
		return nil, err
	}
	after, err := p.ready()
	if err != nil {
		m.end()
		return nil, err
	}
	l := newLetter()
	q, err := cohort.Isend(c.head, l.write(&p, m.k.cfg.Chunk, number), dest, tag)
	if err != nil {
		after.forget()
		m.end()
		return nil, err
	}
	h := newHandle()
	end := func(err error) {
		if err == nil {
			l.free()
			if !alone {
				f := payload{c: c, peer: dest, tag: number, size: p.size, piece: m.k.cfg.Chunk}
				err = f.sendAll(&p, after)
			}
		}
		after.forget()
		m.end()
		if err != nil {
			err = c.wrong(op, dest, tag, err)
		}
		h.finish(noStatus, err)
	}
	if alone {
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

func (c *Comm) recv(op string, p parcel, source, tag int, err error) (cohort.Status, error) {
	m, no := c.messaging()
	if no != nil {
		err = no
	}
	var st cohort.Status
	if err == nil {
		st, err = c.recvNow(m, &p, source, tag)
	}
	if err != nil {
		return st, c.wrong(op, source, tag, err)
	}
	return st, nil
}

func (c *Comm) recvNow(m *messages, p *parcel, source, tag int) (cohort.Status, error) {
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
	return c.take(m, l, p, after)
}

// take receives a message whose envelope has come.
func (c *Comm) take(m *messages, l *letter, p *parcel, after ready) (cohort.Status, error) {
	st, err := cohort.NewStatus(l.source, l.tag, l.size), l.matches(p)
	f := payload{c: c, peer: l.source, tag: l.number, size: l.size, piece: l.piece}
	switch {
	case err != nil && l.inside == nil:
		f.drop()
	case err != nil || l.size == 0:
	case l.inside == nil:
		err = f.recvAll(p, after)
	case p.dev == nil:
		copy(p.host, l.inside)
	default:
		if err = p.inside(c.ctx, l.inside, after); err != nil {
			err = p.named(err)
		}
	}
	l.free()
	m.end()
	return st, err
}

func (c *Comm) irecv(op string, p parcel, source, tag int, err error) (*Handle, error) {
	m, no := c.messaging()
	if no != nil {
		err = no
	}
	var h *Handle
	if err == nil {
		h, _, err = c.recvLater(op, m, p, source, tag)
	}
	if err != nil {
		return nil, c.wrong(op, source, tag, err)
	}
	return h, nil
}

// recvLater starts a receive. What it returns with the handle takes it back if no message has come for it.
func (c *Comm) recvLater(op string, m *messages, p parcel, source, tag int) (*Handle, func(), error) {
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
		if err != nil {
			err = c.wrong(op, source, tag, err)
		}
		h.finish(st, err)
	}
	if q == nil {
		go end(nil)
		return h, func() {}, nil
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

func (c *Comm) recvAlloc(source, tag int, make func(*letter) (parcel, error)) (st cohort.Status, lent bool, err error) {
	m, err := c.messaging()
	if err == nil {
		st, lent, err = c.recvMade(m, source, tag, make)
	}
	if err != nil {
		return st, lent, c.wrong("recvalloc", source, tag, err)
	}
	return st, false, nil
}

func (c *Comm) recvMade(m *messages, source, tag int, make func(*letter) (parcel, error)) (st cohort.Status, lent bool, err error) {
	if source == cohort.ProcNull {
		st, err = cohort.Recv[byte](c.head, nil, source, tag)
		if err == nil {
			_, err = make(nil)
		}
		return st, false, err
	}
	l, err := c.await(m, source, tag)
	if err != nil {
		return cohort.Status{}, false, err
	}
	p, err := make(l)
	var after ready
	if err == nil {
		after, err = p.ready()
	}
	if err != nil {
		p = parcel{} // which nothing matches: it is dropped
		st, _ = c.take(m, l, &p, after)
		return st, false, err
	}
	defer after.forget()
	st, err = c.take(m, l, &p, after)
	return st, p.lent, err
}

func (c *Comm) sendrecv(s parcel, dest, sendTag int, r parcel, source, recvTag int, err error) (cohort.Status, error) {
	m, no := c.messaging()
	switch {
	case no != nil:
		err = no
	case err == nil && s.overlaps(&r):
		err = fault(cohort.ErrBuffer, "send and recv overlap")
	}
	if err != nil {
		return cohort.Status{}, c.wrong("sendrecv", source, recvTag, err)
	}
	h, cancel, err := c.recvLater("sendrecv", m, r, source, recvTag)
	if err != nil {
		return cohort.Status{}, c.wrong("sendrecv", source, recvTag, err)
	}
	if err := c.send("sendrecv", s, dest, sendTag, nil); err != nil {
		cancel()
		<-h.Done()
		return h.Status(), err
	}
	err = h.Wait()
	return h.Status(), err
}
