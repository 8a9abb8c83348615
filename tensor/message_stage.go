package tensor

import (
	"context"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// ready returns the point after all work now in the stream of p, after which its memory can be read or written. It has
// been reached if p is not on a device.
func (p *untyped) ready() (m mark, err error) {
	if p.dev == nil || p.size == 0 {
		return m, nil
	}
	if m, err = markIn(p.dev, p.stream); err != nil {
		err = p.named(err)
	}
	return m, err
}

// waitUntil waits for the point until the context ends.
func (m *mark) waitUntil(ctx context.Context) error {
	if m.event == nil {
		return nil
	}
	return await(ctx, m.event, func() error {
		err := (&backend.Bound{Ctx: ctx}).Err(time.Now())
		return fmt.Errorf("waiting for earlier work in the device's stream: %w", err)
	})
}

// forget frees the event, which may not have occurred.
func (m *mark) forget() {
	if m.event != nil {
		m.dev.events.give(m.event, true)
		m.event = nil
	}
}

// staged moves the payload of p, which is on a device, through pinned memory, in a stream of its own: after a point in
// the tensor's stream. If the operation has a deadline, staged waits for that point, because copies that have started
// cannot be canceled.
func (f *payload) staged(p *untyped, after mark, move func(r *ring, at cursor, s accel.Stream) error) error {
	if f.c.ctx.Done() != nil {
		if err := after.waitUntil(f.c.ctx); err != nil {
			return err
		}
	}
	s, err := p.dev.streams.take()
	if err != nil {
		return err
	}
	if after.event != nil {
		err = s.Follow(after.event)
	}
	if err == nil {
		var r *ring
		if r, err = newRing(p.dev, min(f.piece, f.size), f.size); err == nil {
			err = move(r, cursor{at: p.at, run: f.size}, s)
			r.inUse = f.inUse
			err = r.close(err)
		}
	}
	if err != nil {
		_ = s.Sync() // if this fails as well, the device is broken
	}
	p.dev.streams.give(s, err == nil)
	return err
}

// fetch sends device memory.
func (f *payload) fetch(p *untyped, after mark) error {
	bytes := f.size
	return f.staged(p, after, func(r *ring, from cursor, s accel.Stream) error { return r.toHost(bytes, from, s, f.send) })
}

// store writes what fill provides to device memory: pieces that it receives, or the payload of an envelope.
func (f *payload) store(p *untyped, after mark, fill func(b []byte) error) error {
	bytes := f.size
	return f.staged(p, after, func(r *ring, to cursor, s accel.Stream) error { return r.toDevice(bytes, to, s, fill) })
}
