package tensor

import (
	"sync"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// This file moves bytes to, from, between, and within devices, for places of few pieces. Each function waits until its
// last copy is done, even after an error.

// A cursor walks through a place's bytes on a device in the order of its elements.
type cursor struct {
	at    accel.Address // of the current piece
	run   int           // bytes of each piece
	used  int           // bytes of the current piece already passed
	outer []dim         // dimensions of the pieces: n of them, src bytes apart
	index []int         // of the current piece, in outer
}

func newCursor(p *place) cursor {
	all := merged(dims(nil, p.shape, p.strides, p.strides))
	c := cursor{at: p.at, run: p.size}
	if k := len(all) - 1; k >= 0 && all[k].src == 1 {
		c.run *= all[k].n
		all = all[:k]
	}
	for i := range all {
		all[i].src *= p.size
	}
	c.outer, c.index = all, make([]int, len(all))
	return c
}

// pieces returns the number of pieces.
func (c *cursor) pieces() int {
	n := 1
	for _, d := range c.outer {
		n *= d.n
	}
	return n
}

// next returns the address of the next bytes and how many are adjacent there, at most most.
func (c *cursor) next(most int) (accel.Address, int) {
	at, n := c.at+accel.Address(c.used), min(most, c.run-c.used)
	if c.used += n; c.used < c.run {
		return at, n
	}
	c.used = 0
	for i := len(c.outer) - 1; i >= 0; i-- {
		d := c.outer[i]
		if c.index[i]++; c.index[i] < d.n {
			c.at += accel.Address(d.src)
			break
		}
		c.index[i] = 0
		c.at -= accel.Address((d.n - 1) * d.src)
	}
	return at, n
}

// each calls do with the pieces of the next bytes, and with the parts of b that belong to them, until b is used up.
func (c *cursor) each(b []byte, do func(at accel.Address, part []byte) error) error {
	for len(b) > 0 {
		at, n := c.next(len(b))
		if err := do(at, b[:n:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// A mark is a point in a stream that is waited for once.
type mark struct {
	dev    *Device
	event  accel.Event
	stream accel.Stream // nil: nothing to wait for
}

func newMark(d *Device) (mark, error) {
	e, err := d.events.take()
	if err != nil {
		return mark{}, err
	}
	return mark{dev: d, event: e}, nil
}

// markIn returns a mark behind the work now in a stream of a device.
func markIn(d *Device, s accel.Stream) (mark, error) {
	m, err := newMark(d)
	if err != nil {
		return mark{}, err
	}
	if err = m.set(s); err != nil {
		d.events.give(m.event, false)
		return mark{}, err
	}
	return m, nil
}

// set moves the mark behind the work now in a stream of its device.
func (m *mark) set(s accel.Stream) error {
	m.stream = s
	return s.Record(m.event)
}

// wait waits until the mark is reached.
func (m *mark) wait() error {
	if m.stream == nil {
		return nil
	}
	err := m.event.Sync()
	if err == nil {
		m.stream = nil
	}
	return err
}

// A ring is two pieces of pinned memory: one is filled while the other is emptied. Each piece has a mark behind the
// device's last copy to or from it.
type ring struct {
	dev   *Device
	chunk int
	inUse bool // the library may still be using the pinned memory, which is then never reused
	slots [2]struct {
		b    []byte
		copy mark
	}
}

var rings = sync.Pool{New: func() any { return new(ring) }}

// chunkOf returns the length of the pieces for a transfer: short enough for several pieces, so that
// filling and emptying overlap, but not so short that starting copies dominates.
func chunkOf(bytes int) int {
	const least = 256 << 10
	chunk := least
	for chunk < bytes/4 && chunk < chunkDefault {
		chunk *= 2
	}
	return min(chunk, bytes)
}

// newRing returns a ring for a transfer to or from a device, in pieces.
func newRing(d *Device, chunk, bytes int) (r *ring, err error) {
	r = rings.Get().(*ring)
	r.dev, r.chunk = d, chunk
	for i := range r.slots {
		s := &r.slots[i]
		if i*r.chunk >= bytes {
			break
		}
		if s.b, err = d.pin(r.chunk); err != nil {
			return nil, r.close(err)
		}
		if s.copy, err = newMark(d); err != nil {
			return nil, r.close(err)
		}
	}
	return r, nil
}

// close frees everything once no copy uses it any more. It returns err, or else its first own
// error.
func (r *ring) close(err error) error {
	err = closeMarks(err, &r.slots[0].copy, &r.slots[1].copy)
	for i := range r.slots {
		if b := r.slots[i].b; b != nil && !r.inUse {
			r.dev.unpin(b)
		}
	}
	*r = ring{}
	rings.Put(r)
	return err
}

// toHost passes bytes that a cursor reaches to use, in pieces: one is copied from the device while the one before is
// used.
func (r *ring) toHost(bytes int, from cursor, stream accel.Stream, use func(b []byte) error) error {
	part := func(k int) []byte { return r.slots[k%2].b[:max(0, min(r.chunk, bytes-k*r.chunk))] }
	toHost := func(at accel.Address, part []byte) error { return stream.ToHost(part, at) }
	start := func(k int) error {
		if k*r.chunk >= bytes {
			return nil
		}
		s := &r.slots[k%2]
		s.copy.stream = stream
		if err := from.each(part(k), toHost); err != nil {
			return err
		}
		return s.copy.set(stream)
	}
	err := start(0)
	for k := 0; k*r.chunk < bytes && err == nil; k++ {
		if err = start(k + 1); err != nil {
			break
		}
		if err = r.slots[k%2].copy.wait(); err == nil {
			err = use(part(k))
		}
	}
	return err
}

// toDevice copies bytes that fill provides, in pieces, to where a cursor leads: one is copied to the device while the
// next is filled.
func (r *ring) toDevice(bytes int, to cursor, stream accel.Stream, fill func(b []byte) error) (err error) {
	for k := 0; k*r.chunk < bytes && err == nil; k++ {
		s := &r.slots[k%2]
		b := s.b[:min(r.chunk, bytes-k*r.chunk)]
		if err = s.copy.wait(); err != nil {
			break
		}
		if err = fill(b); err != nil {
			break
		}
		s.copy.stream = stream
		if err = to.each(b, stream.ToDevice); err == nil {
			err = s.copy.set(stream)
		}
	}
	return err
}

// closeMarks waits for marks and frees them. After an error some marks may not be set, so it waits
// for their whole streams. It returns err, or else its first own error.
func closeMarks(err error, marks ...*mark) error {
	for _, m := range marks {
		if err == nil {
			err = m.wait()
		}
		if m.stream != nil {
			_ = m.stream.Sync() // if this fails as well, the device is broken
		}
	}
	for _, m := range marks {
		if m.event != nil {
			m.dev.events.give(m.event, err == nil)
		}
	}
	return err
}

// upload copies b to a device.
func upload(dst place, b []byte) error {
	r, err := newRing(dst.dev, chunkOf(len(b)), len(b))
	if err != nil {
		return err
	}
	return r.close(r.toDevice(len(b), newCursor(&dst), dst.stream, func(part []byte) error {
		blit(part, b[:len(part)])
		b = b[len(part):]
		return nil
	}))
}

// download fills b from a device.
func download(b []byte, src place) error {
	r, err := newRing(src.dev, chunkOf(len(b)), len(b))
	if err != nil {
		return err
	}
	return r.close(r.toHost(len(b), newCursor(&src), src.stream, func(part []byte) error {
		blit(b[:len(part)], part)
		b = b[len(part):]
		return nil
	}))
}

// across copies from one device to another. The next piece comes from the one while the other takes this one.
func across(dst, src place) error {
	bytes := src.n * src.size
	r, err := newRing(src.dev, chunkOf(bytes), bytes)
	if err != nil {
		return err
	}
	to := newCursor(&dst)
	return r.close(r.toHost(bytes, newCursor(&src), src.stream, func(part []byte) error {
		if err := to.each(part, dst.stream.ToDevice); err != nil {
			return err
		}
		return dst.stream.Sync()
	}))
}

// within copies on one device. If copies is false, it only waits for the work now in the streams.
func within(dst, src place, copies bool) (err error) {
	var ready, done mark
	for _, m := range [...]*mark{&ready, &done} {
		if *m, err = newMark(dst.dev); err != nil {
			return closeMarks(err, &done, &ready)
		}
	}
	if src.stream.Handle() != dst.stream.Handle() {
		ready.stream = src.stream
		if err = ready.set(src.stream); err == nil {
			err = dst.stream.Follow(ready.event)
		}
	}
	if err == nil {
		done.stream = dst.stream
		if copies {
			err = copyWithin(dst, src)
		}
		if err == nil {
			err = done.set(dst.stream)
		}
	}
	return closeMarks(err, &done, &ready)
}

func copyWithin(dst, src place) error {
	from, to := newCursor(&src), newCursor(&dst)
	for left := src.n * src.size; left > 0; {
		a, n := from.next(left)
		for left -= n; n > 0; {
			b, m := to.next(n)
			if err := dst.stream.Within(b, a, m); err != nil {
				return err
			}
			a, n = a+accel.Address(m), n-m
		}
	}
	return nil
}
