package tensor

import (
	"context"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// A lane copies one message between a device and pinned memory. It has two pieces of pinned memory:
// one is being copied while the other is being sent or received.
type lane struct {
	dev    *Device
	stream accel.Stream
	halves [2]half
}

type half struct {
	pin  *pin
	b    []byte
	done accel.Event // after the last copy
	busy bool        // the last copy may be pending
}

// wait waits until a half's copy is done.
func (s *half) wait() error {
	if !s.busy {
		return nil
	}
	err := s.done.Sync()
	s.busy = err != nil
	return err
}

// ready is a point in a stream, after which device memory can be read or written; the zero value
// has been reached.
type ready struct {
	dev   *Device
	event accel.Event
}

// ready returns the point after all work now in the stream of p.
func (p *untyped) ready() (r ready, err error) {
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

// wait waits for the point until the context ends.
func (r *ready) wait(ctx context.Context) error {
	if r.event == nil {
		return nil
	}
	return await(ctx, r.event, func() error {
		err := (&backend.Bound{Ctx: ctx}).Err(time.Now())
		return fmt.Errorf("waiting for earlier work in the device's stream: %w", err)
	})
}

// forget frees the event.
func (r *ready) forget() {
	if r.event != nil {
		r.dev.giveEvent(r.event, true)
		r.event = nil
	}
}

// newLane returns a lane for a payload in pieces, whose copies come after a point in the tensor's
// stream. If the operation has a deadline, newLane waits for that point, because copies that have
// started cannot be canceled.
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

// back frees a lane when its copies are done, and returns err, or the error of the copies. If free
// is false, the library may still be using the pinned memory, which is then never reused.
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

// fetch sends device memory: one piece is copied while the one before is sent.
func (f *payload) fetch(p *untyped, after ready) error {
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
		if err = s.wait(); err != nil {
			break
		}
		if err = f.send(s.b[:f.next()]); err != nil {
			free = !f.inUse
			break
		}
		err = start(i + 2)
	}
	return l.back(err, free)
}

// store receives into device memory: one piece is copied while the next is received.
func (f *payload) store(p *untyped, after ready) error {
	l, err := newLane(f.c.ctx, p.dev, f.size, f.piece, after)
	if err != nil {
		return err
	}
	free := true
	for i := 0; f.next() > 0 && err == nil; i++ {
		s := &l.halves[i%2]
		if err = s.wait(); err != nil {
			break
		}
		at, b := p.at+accel.Address(f.off), s.b[:f.next()]
		if err = f.recv(b); err != nil {
			free = !f.inUse
			break
		}
		s.busy = true
		if err = l.stream.ToDevice(at, b); err == nil {
			err = l.stream.Record(s.done)
		}
	}
	return l.back(err, free)
}

// inside copies a payload from its envelope to a device.
func (p *untyped) inside(ctx context.Context, b []byte, after ready) error {
	l, err := newLane(ctx, p.dev, len(b), len(b), after)
	if err != nil {
		return err
	}
	s := &l.halves[0]
	copy(s.b, b)
	return l.back(l.stream.ToDevice(p.at, s.b), true)
}
