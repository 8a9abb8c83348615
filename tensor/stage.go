package tensor

import (
	"context"
	"time"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// This file moves a collective's pieces between a device and pinned memory.

// slot is pinned memory for a piece.
type slot struct {
	in, out       []byte // for what is read and for what is written; the same memory if both are on one device
	loaded, saved accel.Event
	saving        bool // a copy from it may be pending
}

const (
	slotsMost = 4 // one piece being reduced, one being written, and
	ahead     = 2 // two being read
)

// mark records the work now in the tensors' streams, so that copies come after it.
func (co *collective) mark() *collective {
	for _, s := range [...]*side{&co.in, &co.out} {
		if s.dev == nil || s.blocks == 0 || co.early != nil {
			continue
		}
		if s == &co.out && co.in.ready != nil && co.in.dev == s.dev && co.in.stream.Handle() == s.stream.Handle() {
			continue
		}
		if s.ready, co.early = s.dev.events.take(); co.early == nil {
			co.early = s.stream.Record(s.ready)
		}
	}
	return co
}

// prepare starts the first copies to the host, after the work that mark recorded. It waits for that
// work if the root package reads the memory itself.
func (co *collective) prepare() (err error) {
	for _, s := range [...]*side{&co.in, &co.out} {
		if s.ready != nil && (!s.staged() || co.c.ctx.Done() != nil) {
			if err := await(co.c.ctx, s.ready, co.c.expired); err != nil {
				return err
			}
		}
	}
	if co.in.staged() {
		if co.load, err = co.in.dev.streams.take(); err == nil {
			err = co.load.Follow(co.in.ready)
		}
	}
	if err == nil && co.out.staged() {
		if co.save, err = co.out.dev.streams.take(); err == nil {
			ready := co.out.ready
			if ready == nil {
				ready = co.in.ready
			}
			err = co.save.Follow(ready)
		}
	}
	if err == nil {
		err = co.read(ahead)
	}
	return err
}

// await waits for an event until the context ends, and then returns the error of expired.
func await(ctx context.Context, e accel.Event, expired func() error) error {
	if ctx.Done() == nil {
		return e.Sync()
	}
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if done, err := e.Done(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return expired()
		case <-time.After(pause):
		}
	}
}

// read starts the copies to the host of all pieces up to last.
func (co *collective) read(last int) error {
	if !co.in.staged() {
		return nil
	}
	for ; co.loads < min(last+1, co.pieces); co.loads++ {
		s, err := co.slot(co.loads)
		if err != nil {
			return err
		}
		lo, k := co.piece(co.loads)
		bytes, first := k*co.elem, 0
		if co.shared && co.in.blocks < co.out.blocks { // in place, only this rank's block is read
			first = co.c.Rank()
		}
		for b := range co.in.blocks {
			at := co.in.at + accel.Address((b*co.n+lo)*co.elem)
			if err := co.load.ToHost(s.in[(first+b)*bytes:(first+b+1)*bytes], at); err != nil {
				return err
			}
		}
		if err := co.load.Record(s.loaded); err != nil {
			return err
		}
	}
	return nil
}

// write starts the copies of a piece to the device.
func (co *collective) write(s *slot, i int) error {
	lo, k := co.piece(i)
	bytes := k * co.elem
	s.saving = true
	for b := range co.out.blocks {
		at := co.out.at + accel.Address((b*co.n+lo)*co.elem)
		if err := co.save.ToDevice(at, s.out[b*bytes:(b+1)*bytes]); err != nil {
			return err
		}
	}
	return co.save.Record(s.saved)
}

// slot returns the pinned memory of a piece, free of pending copies.
func (co *collective) slot(i int) (s *slot, err error) {
	s = &co.slots[i%slotsMost]
	if s.saving {
		if err := s.saved.Sync(); err != nil {
			return nil, err
		}
		s.saving = false
	}
	in, out := 0, 0
	if co.in.staged() {
		in = co.in.blocks * co.m * co.elem
	}
	if co.out.staged() {
		out = co.out.blocks * co.m * co.elem
	}
	if co.shared {
		in, out = max(in, out), 0
	}
	if in > 0 && s.in == nil {
		if s.loaded, err = co.in.dev.events.take(); err != nil {
			return nil, err
		}
		if s.in, err = co.in.dev.pin(in); err != nil {
			return nil, err
		}
	}
	if co.out.staged() && s.out == nil {
		if s.saved, err = co.out.dev.events.take(); err != nil {
			return nil, err
		}
		if s.out = s.in; !co.shared {
			s.out, err = co.out.dev.pin(out)
		}
	}
	return s, err
}

// free releases everything a collective holds once no copy is pending, and returns err. Memory that the
// library may still be using is never reused.
func (co *collective) free(err error) error {
	sound := true
	for _, s := range [...]accel.Stream{co.load, co.save} {
		if err != nil && s != nil && s.Sync() != nil {
			sound = false // these streams and events must not be reused
		}
	}
	give := func(d *Device, s accel.Stream, events ...accel.Event) {
		if s != nil {
			d.streams.give(s, sound)
		}
		for _, e := range events {
			if e != nil {
				d.events.give(e, sound)
			}
		}
	}
	give(co.in.dev, co.load, co.in.ready)
	give(co.out.dev, co.save, co.out.ready)
	for i := range co.slots {
		s := &co.slots[i]
		give(co.in.dev, nil, s.loaded)
		give(co.out.dev, nil, s.saved)
		if s.in != nil && !co.inUse {
			co.in.dev.unpin(s.in)
		}
		if s.out != nil && !co.shared && !co.inUse {
			co.out.dev.unpin(s.out)
		}
	}
	if co.scratch != nil && !co.inUse {
		scratches.Put(co.scratch)
	}
	if co.inUse {
		co.parts = parts{}
	}
	co.caller.clear()
	*co = collective{parts: co.parts, caller: co.caller}
	collectives.Put(co)
	return err
}
