package tensor

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// payload is what is still to be sent or received of a message that has a payload of its own.
type payload struct {
	c           *Comm
	peer, tag   int
	size, piece int
	off         int  // bytes that are through
	lent        bool // the library beneath may still be using the memory of a piece that failed
}

// next returns how long the next piece is; 0 after the last one.
func (f *payload) next() int { return min(f.piece, f.size-f.off) }

// send sends the next piece.
func (f *payload) send(b []byte) error {
	k := f.c.core
	broken := k.loadBroken.known.Load()
	err := cohort.Send(f.c.load, b, f.peer, f.tag)
	if err == nil {
		f.off += len(b)
	} else {
		f.lent = !broken && k.loadBroken.keeps(k.load)
	}
	return err
}

// giveUp tells the receiver that what is left does not come, and why: by a piece without anything, and the
// reason behind it. They are so short that they wait for nobody; if they have to, that is not the caller's
// affair.
func (f *payload) giveUp(why error) {
	if f.next() == 0 {
		return
	}
	text := append([]byte{backend.Code(why)}, why.Error()...)
	m := &f.c.core.messages
	load := f.c.core.load.WithContext(m.ctx)
	for _, b := range [][]byte{nil, text[:min(len(text), envelopeMost)]} {
		q, err := cohort.Isend(load, b, f.peer, f.tag)
		if err != nil {
			return // the communicator is of no use any more, and the receiver's end says so itself
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
		f.lent = !broken && k.loadBroken.keeps(k.load)
		return err
	}
	if n := st.Bytes(); n != len(b) {
		f.size = f.off
		if n != 0 {
			return fault(cohort.ErrInternal, "rank %d has sent a piece of %d bytes, and %d were due", f.peer, n, len(b))
		}
		return f.gaveUp()
	}
	f.off += len(b)
	return nil
}

// gaveUp returns the error that the sender tells.
func (f *payload) gaveUp() error {
	text := make([]byte, envelopeMost)
	st, err := cohort.Recv(f.c.load, text, f.peer, f.tag)
	if err != nil || st.Bytes() < 2 {
		return fault(cohort.ErrCanceled, "rank %d has given up sending it", f.peer)
	}
	return fmt.Errorf("rank %d has given up sending it: %w", f.peer, &told{backend.Sentinel(text[0]), string(text[1:st.Bytes()])})
}

// told is another rank's error, whose text names the sentinel already.
type told struct {
	sentinel error
	text     string
}

func (e *told) Error() string { return e.text }
func (e *told) Unwrap() error { return e.sentinel }

// drop receives what is left and forgets it: under the operation's limits, and if these end it, in the
// background.
func (f *payload) drop() {
	if f.next() == 0 {
		return
	}
	b := make([]byte, f.next())
	if f.through(b) == nil {
		return
	}
	m := &f.c.core.messages
	rest := *f
	rest.c = &Comm{core: f.c.core, coll: f.c.coll, head: f.c.head, load: f.c.core.load.WithContext(m.ctx), ctx: m.ctx}
	m.background.Go(func() { _ = rest.through(b) })
}

// through receives into b until nothing is left. Its error is a limit's.
func (f *payload) through(b []byte) error {
	for f.next() > 0 {
		if err := f.recv(b[:f.next()]); err != nil && f.next() > 0 {
			if ended(err) {
				return err
			}
			return nil // there is nothing to be had any more
		}
	}
	return nil
}

// ended reports whether an operation was taken back because of a limit, and its communicator is as it
// was.
func ended(err error) bool {
	return (errors.Is(err, cohort.ErrTimeout) || errors.Is(err, cohort.ErrCanceled)) && !errors.Is(err, cohort.ErrBroken)
}

// sendAll sends the payload of p. It ends with all of it sent, or with the receiver told.
func (f *payload) sendAll(p *parcel, after ready) (err error) {
	switch {
	case p.dev == nil:
		for err == nil && f.next() > 0 {
			err = f.send(p.host[f.off:][:f.next()])
		}
	case f.c.core.takesPayload(f.peer, f.size, f.piece):
		err = after.wait(f.c.ctx)
		for err == nil && f.next() > 0 {
			err = f.send(p.dev.acc.View(p.at+accel.Address(f.off), f.next()))
		}
	default:
		err = f.fetch(p, after)
	}
	if err != nil {
		err = p.named(err)
		f.giveUp(err)
	}
	return err
}

// recvAll receives the payload of a message into p. It ends with all of it received, or dropped.
func (f *payload) recvAll(p *parcel, after ready) (err error) {
	switch {
	case p.dev == nil:
		for err == nil && f.next() > 0 {
			err = f.recv(p.host[f.off:][:f.next()])
		}
	case f.c.core.takesPayload(f.peer, f.size, f.piece):
		err = after.wait(f.c.ctx)
		for err == nil && f.next() > 0 {
			err = f.recv(p.dev.acc.View(p.at+accel.Address(f.off), f.next()))
		}
		p.lent = f.lent
	default:
		err = f.store(p, after)
	}
	if err != nil {
		err = p.named(err)
		f.drop()
	}
	return err
}
