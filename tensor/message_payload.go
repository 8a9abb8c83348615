package tensor

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// payload is the rest of a message whose payload is not in its envelope.
type payload struct {
	c           *Comm
	peer, tag   int
	size, piece int
	off         int  // bytes sent or received
	inUse       bool // the library may still be using the memory of a piece that failed
}

// next returns the length of the next piece, or 0 after the last one.
func (f *payload) next() int { return min(f.piece, f.size-f.off) }

// send sends the next piece.
func (f *payload) send(b []byte) error {
	k := f.c.core
	broken := k.loadBroken.known.Load()
	err := cohort.Send(f.c.load, b, f.peer, f.tag)
	if err == nil {
		f.off += len(b)
	} else {
		f.inUse = !broken && k.loadBroken.keeps(k.load)
	}
	return err
}

// abort tells the receiver that the rest of the message will not come, and why: with an empty
// piece, followed by one with the reason. Both are short enough to be sent at once; if they must
// wait, they do so in the background.
func (f *payload) abort(why error) {
	if f.next() == 0 {
		return
	}
	m := &f.c.core.messages
	load := f.c.core.load.WithContext(m.ctx)
	for _, b := range [][]byte{nil, backend.EncodeError(why, envelopeMost)} {
		q, err := cohort.Isend(load, b, f.peer, f.tag)
		if err != nil {
			return // the communicator is broken, and the receiver finds out by itself
		}
		if _, done, _ := q.Test(); !done {
			m.background.Go(func() { _, _ = q.Wait() })
		}
	}
}

// recv receives the next piece.
func (f *payload) recv(b []byte) error {
	k := f.c.core
	broken := k.loadBroken.known.Load()
	st, err := cohort.Recv(f.c.load, b, f.peer, f.tag)
	if err != nil {
		f.inUse = !broken && k.loadBroken.keeps(k.load)
		return err
	}
	if n := st.Bytes(); n != len(b) {
		f.size = f.off
		if n != 0 {
			return fault(cohort.ErrInternal, "rank %d sent a piece of %d bytes; want %d", f.peer, n, len(b))
		}
		return f.remoteError()
	}
	f.off += len(b)
	return nil
}

// remoteError receives the reason for which the sender stopped.
func (f *payload) remoteError() error {
	text := make([]byte, envelopeMost)
	st, err := cohort.Recv(f.c.load, text, f.peer, f.tag)
	if ended(err) {
		f.later(func(rest *payload) { _, _ = cohort.Recv(rest.c.load, make([]byte, envelopeMost), rest.peer, rest.tag) })
		return err
	}
	if err != nil || st.Bytes() < 2 {
		return fault(cohort.ErrCanceled, "rank %d stopped sending the message", f.peer)
	}
	return fmt.Errorf("rank %d stopped sending the message: %w", f.peer, backend.DecodeError(text[:st.Bytes()]))
}

// drop receives and discards the rest of a message: within the operation's deadline, and after that
// in the background.
func (f *payload) drop() {
	if f.next() == 0 {
		return
	}
	b := make([]byte, f.next())
	if f.through(b) == nil {
		return
	}
	f.later(func(rest *payload) { _ = rest.through(b) })
}

// later receives what is left in the background, without the operation's deadline.
func (f *payload) later(receive func(rest *payload)) {
	m, rest := &f.c.core.messages, *f
	rest.c = &Comm{core: f.c.core, coll: f.c.coll, head: f.c.head, load: f.c.core.load.WithContext(m.ctx), ctx: m.ctx}
	m.background.Go(func() { receive(&rest) })
}

// through receives into b until nothing is left. It returns only errors of the deadline or the
// context.
func (f *payload) through(b []byte) error {
	for f.next() > 0 {
		if err := f.recv(b[:f.next()]); err != nil && f.next() > 0 {
			if ended(err) {
				return err
			}
			return nil // nothing more can be received
		}
	}
	return nil
}

// ended reports whether an operation was canceled by its deadline or context and left its
// communicator usable.
func ended(err error) bool {
	return (errors.Is(err, cohort.ErrTimeout) || errors.Is(err, cohort.ErrCanceled)) && !errors.Is(err, cohort.ErrBroken)
}

// sendAll sends the payload of p. If it fails, it tells the receiver.
func (f *payload) sendAll(p *untyped, after mark) (err error) {
	switch {
	case p.dev == nil:
		for err == nil && f.next() > 0 {
			err = f.send(p.host[f.off:][:f.next()])
		}
	case f.c.core.takesPayload(f.peer, f.size, f.piece):
		err = after.waitUntil(f.c.ctx)
		for err == nil && f.next() > 0 {
			err = f.send(f.c.view(p.dev, p.at+accel.Address(f.off), f.next()))
		}
	default:
		err = f.fetch(p, after)
	}
	if err != nil {
		err = p.named(err)
		f.abort(err)
	}
	return err
}

// recvAll receives the payload of a message into p. If it fails, it drops the rest.
func (f *payload) recvAll(p *untyped, after mark) (err error) {
	switch {
	case p.dev == nil:
		for err == nil && f.next() > 0 {
			err = f.recv(p.host[f.off:][:f.next()])
		}
	case f.c.core.takesPayload(f.peer, f.size, f.piece):
		err = after.waitUntil(f.c.ctx)
		for err == nil && f.next() > 0 {
			err = f.recv(f.c.view(p.dev, p.at+accel.Address(f.off), f.next()))
		}
		p.inUse = f.inUse
	default:
		err = f.store(p, after, f.recv)
	}
	if err != nil {
		err = p.named(err)
		f.drop()
	}
	return err
}
