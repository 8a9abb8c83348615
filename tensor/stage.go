package tensor

import (
	"context"
	"time"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// This file moves a job's pieces between a device and pinned memory.

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
func (j *job) mark() *job {
	for _, s := range [...]*side{&j.in, &j.out} {
		if s.dev == nil || s.blocks == 0 || j.early != nil {
			continue
		}
		if s == &j.out && j.in.ready != nil && j.in.dev == s.dev && j.in.stream.Handle() == s.stream.Handle() {
			continue
		}
		if s.ready, j.early = s.dev.takeEvent(); j.early == nil {
			j.early = s.stream.Record(s.ready)
		}
	}
	return j
}

// prepare starts the first copies to the host, after the work that mark recorded. It waits for that
// work if the root package reads the memory itself.
func (j *job) prepare() (err error) {
	for _, s := range [...]*side{&j.in, &j.out} {
		if s.ready != nil && (!s.staged() || j.c.ctx.Done() != nil) {
			if err := await(j.c.ctx, s.ready, j.c.expired); err != nil {
				return err
			}
		}
	}
	if j.in.staged() {
		if j.load, err = j.in.dev.takeStream(); err == nil {
			err = j.load.Follow(j.in.ready)
		}
	}
	if err == nil && j.out.staged() {
		if j.save, err = j.out.dev.takeStream(); err == nil {
			ready := j.out.ready
			if ready == nil {
				ready = j.in.ready
			}
			err = j.save.Follow(ready)
		}
	}
	if err == nil {
		err = j.read(ahead)
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
func (j *job) read(last int) error {
	if !j.in.staged() {
		return nil
	}
	for ; j.loads < min(last+1, j.pieces); j.loads++ {
		s, err := j.slot(j.loads)
		if err != nil {
			return err
		}
		lo, k := j.piece(j.loads)
		bytes, first := k*j.elem, 0
		if j.shared && j.in.blocks < j.out.blocks { // in place, only this rank's block is read
			first = j.c.Rank()
		}
		for b := range j.in.blocks {
			at := j.in.at + accel.Address((b*j.n+lo)*j.elem)
			if err := j.load.ToHost(s.in[(first+b)*bytes:(first+b+1)*bytes], at); err != nil {
				return err
			}
		}
		if err := j.load.Record(s.loaded); err != nil {
			return err
		}
	}
	return nil
}

// write starts the copies of a piece to the device.
func (j *job) write(s *slot, i int) error {
	lo, k := j.piece(i)
	bytes := k * j.elem
	s.saving = true
	for b := range j.out.blocks {
		at := j.out.at + accel.Address((b*j.n+lo)*j.elem)
		if err := j.save.ToDevice(at, s.out[b*bytes:(b+1)*bytes]); err != nil {
			return err
		}
	}
	return j.save.Record(s.saved)
}

// slot returns the pinned memory of a piece, free of pending copies.
func (j *job) slot(i int) (s *slot, err error) {
	s = &j.slots[i%slotsMost]
	if s.saving {
		if err := s.saved.Sync(); err != nil {
			return nil, err
		}
		s.saving = false
	}
	in, out := 0, 0
	if j.in.staged() {
		in = j.in.blocks * j.m * j.elem
	}
	if j.out.staged() {
		out = j.out.blocks * j.m * j.elem
	}
	if j.shared {
		in, out = max(in, out), 0
	}
	if in > 0 && s.in == nil {
		if s.loaded, err = j.in.dev.takeEvent(); err != nil {
			return nil, err
		}
		if s.in, err = j.in.dev.pin(in); err != nil {
			return nil, err
		}
	}
	if j.out.staged() && s.out == nil {
		if s.saved, err = j.out.dev.takeEvent(); err != nil {
			return nil, err
		}
		if s.out = s.in; !j.shared {
			s.out, err = j.out.dev.pin(out)
		}
	}
	return s, err
}

// free releases everything a job holds once no copy is pending, and returns err. Memory that the
// library may still be using is never reused.
func (j *job) free(err error) error {
	sound := true
	for _, s := range [...]accel.Stream{j.load, j.save} {
		if err != nil && s != nil && s.Sync() != nil {
			sound = false // these streams and events must not be reused
		}
	}
	give := func(d *Device, s accel.Stream, events ...accel.Event) {
		if s != nil {
			d.giveStream(s, sound)
		}
		for _, e := range events {
			if e != nil {
				d.giveEvent(e, sound)
			}
		}
	}
	give(j.in.dev, j.load, j.in.ready)
	give(j.out.dev, j.save, j.out.ready)
	for i := range j.slots {
		s := &j.slots[i]
		give(j.in.dev, nil, s.loaded)
		give(j.out.dev, nil, s.saved)
		if s.in != nil && !j.inUse {
			j.in.dev.unpin(s.in)
		}
		if s.out != nil && !j.shared && !j.inUse {
			j.out.dev.unpin(s.out)
		}
	}
	if j.scratch != nil && !j.inUse {
		scratches.Put(j.scratch)
	}
	if j.inUse {
		j.parts = parts{}
	}
	j.caller.clear()
	*j = job{parts: j.parts, caller: j.caller}
	jobs.Put(j)
	return err
}
