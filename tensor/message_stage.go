package tensor

import (
	"context"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// A lane is a stream for the copies of one message between a device and pinned memory of two pieces, one
// of which is copied while the other is sent or received.
type lane struct {
	dev    *Device
	stream accel.Stream
	halves [2]half
}

type half struct {
	pin  *pin
	b    []byte
	done accel.Event // of the last copy
	busy bool        // it may be under way
}

// settle waits until a half's copy is done.
func (s *half) settle() error {
	if !s.busy {
		return nil
	}
	err := s.done.Sync()
	s.busy = err != nil
	return err
}

// ready is the moment from which on a device's memory can be read, or written; the zero value: now.
type ready struct {
	dev   *Device
	event accel.Event
}

// ready returns the moment after all work that is in the stream of p now.
func (p *parcel) ready() (r ready, err error) {
	if p.dev == nil || p.size == 0 {
		return r, nil
	}
	e, err := p.dev.takeEvent()
	if err != nil {
		return r, p.named(err)
	}
	if err = p.stream.Record(e); err != nil {
		p.dev.giveEvent(e, false)
		return r, p.named(err)
	}
	return ready{p.dev, e}, nil
}

// wait waits for the moment as long as the context says.
func (r *ready) wait(ctx context.Context) error {
	switch {
	case r.event == nil:
		return nil
	case ctx.Done() == nil:
		return r.event.Sync()
	}
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if done, err := r.event.Done(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			err := (&backend.Bound{Ctx: ctx}).Err(time.Now())
			return fmt.Errorf("the device has not done the work before it in its stream: %w", err)
		case <-time.After(pause):
		}
	}
}

// forget gives a moment back.
func (r *ready) forget() {
	if r.event != nil {
		r.dev.giveEvent(r.event, true)
		r.event = nil
	}
}

// newLane returns a lane for a payload in pieces, whose copies come after a moment. If the operation has
// limits, it waits for the moment: copies that have been started cannot be taken back.
func newLane(ctx context.Context, dev *Device, size, piece int, after ready) (l *lane, err error) {
	if ctx.Done() != nil {
		if err := after.wait(ctx); err != nil {
			return nil, err
		}
	}
	l = &lane{dev: dev}
	if l.stream, err = dev.takeStream(); err != nil {
		return nil, err
	}
	for i := range l.halves {
		s := &l.halves[i]
		if i*piece < size && err == nil {
			if s.done, err = dev.takeEvent(); err == nil {
				s.pin, s.b, err = dev.pin(min(piece, size))
			}
		}
	}
	if err == nil && after.event != nil {
		err = l.stream.Follow(after.event)
	}
	if err != nil {
		return nil, l.back(err, true)
	}
	return l, nil
}

// back gives a lane back when its copies are done, and returns err, or what went wrong with them. Pinned
// memory that the library beneath may still be using is not given to others: free is false then, and it
// is lost.
func (l *lane) back(err error, free bool) error {
	if e := l.stream.Sync(); err == nil {
		err = e
	}
	for i := range l.halves {
		s := &l.halves[i]
		if s.done != nil {
			l.dev.giveEvent(s.done, err == nil)
		}
		if s.pin != nil && free {
			l.dev.unpin(s.pin)
		}
	}
	l.dev.giveStream(l.stream, err == nil)
	return err
}

// fetch sends a device's memory: the copy of one piece is under way while the one before is sent.
func (f *payload) fetch(p *parcel, after ready) error {
	l, err := newLane(f.c.ctx, p.dev, f.size, f.piece, after)
	if err != nil {
		return err
	}
	start := func(i int) error {
		from := i * f.piece
		if from >= f.size {
			return nil
		}
		s := &l.halves[i%2]
		s.busy = true
		if err := l.stream.ToHost(s.b[:min(f.piece, f.size-from)], p.at+accel.Address(from)); err != nil {
			return err
		}
		return l.stream.Record(s.done)
	}
	err = start(0)
	if err == nil {
		err = start(1)
	}
	free := true
	for i := 0; f.next() > 0 && err == nil; i++ {
		s := &l.halves[i%2]
		if err = s.settle(); err != nil {
			break
		}
		if err = f.send(s.b[:f.next()]); err != nil {
			free = !f.lent
			break
		}
		err = start(i + 2)
	}
	return l.back(err, free)
}

// store receives into a device's memory: the copy of one piece is under way while the next is received.
func (f *payload) store(p *parcel, after ready) error {
	l, err := newLane(f.c.ctx, p.dev, f.size, f.piece, after)
	if err != nil {
		return err
	}
	free := true
	for i := 0; f.next() > 0 && err == nil; i++ {
		s := &l.halves[i%2]
		if err = s.settle(); err != nil {
			break
		}
		at, b := p.at+accel.Address(f.off), s.b[:f.next()]
		if err = f.recv(b); err != nil {
			free = !f.lent
			break
		}
		s.busy = true
		if err = l.stream.ToDevice(at, b); err == nil {
			err = l.stream.Record(s.done)
		}
	}
	return l.back(err, free)
}

// inside copies a payload that came in its envelope to a device.
func (p *parcel) inside(ctx context.Context, b []byte, after ready) error {
	l, err := newLane(ctx, p.dev, len(b), len(b), after)
	if err != nil {
		return err
	}
	s := &l.halves[0]
	copy(s.b, b)
	return l.back(l.stream.ToDevice(p.at, s.b), true)
}
