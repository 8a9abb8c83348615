package soft

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// A queue holds the work of the streams of one handle. driver.mu guards it.
type queue struct {
	device *Device
	handle uintptr
	work   []*work
	queued int  // number of pieces so far
	done   int  // number of these that are done
	busy   bool // the first piece is being done
	closed bool // takes no more work
}

// A piece of work waits for a moment, does something, or marks a moment.
type work struct {
	bytes int
	after *moment
	do    func() error // called without driver.mu
	mark  *moment
	of    *transfer
	watch bool // check the memory of of
	count *Count
}

func (d *Driver) newQueue(dev *Device) *queue {
	const first, step = 0x50f70000, 0x10 // handles that look like addresses
	q := &queue{device: dev, handle: first + step*uintptr(d.made)}
	d.made++
	d.queues = append(d.queues, q)
	return q
}

// put appends work. driver.mu is held.
func (q *queue) put(w *work) {
	d := q.device.driver
	q.queued++
	d.stats.Work++
	q.work = append(q.work, w)
	if !d.config.Lazy {
		go func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			for d.step() {
			}
		}()
	}
}

// able reports whether the first piece can be done now. driver.mu is held.
func (q *queue) able() bool {
	return len(q.work) > 0 && !q.busy && (q.work[0].after == nil || q.work[0].after.come || q.device.lost != nil)
}

// step does a piece of work of any stream. It reports false if none can be done now. d.mu is held, but released
// meanwhile.
func (d *Driver) step() bool {
	var able []*queue
	for _, q := range d.queues {
		if q.able() {
			able = append(able, q)
		}
	}
	if len(able) == 0 {
		return false
	}
	q := able[d.random.IntN(len(able))]
	w := q.work[0]
	q.busy = true
	q.perform(w)
	q.busy = false
	if w.mark != nil {
		w.mark.come = true
	}
	q.work = q.work[1:]
	q.done++
	d.stats.Work--
	d.changed.Broadcast()
	return true
}

// perform does a piece of work. driver.mu is held, but released meanwhile.
func (q *queue) perform(w *work) {
	d := q.device.driver
	defer w.drop(d)
	if q.device.lost == nil && w.do != nil {
		if err := d.called(Run, q.device, w.bytes); err != nil {
			q.device.lose(err)
		}
	}
	if q.device.lost != nil || w.do == nil {
		return
	}
	watch := w.of != nil && w.watch && w.of.watched
	d.mu.Unlock()
	intact := !watch || !w.of.write || w.of.intact()
	err := w.do()
	intact = intact && (!watch || w.of.write || w.of.intact())
	d.mu.Lock()
	if !intact && w.of.watched {
		which := map[bool]string{true: "to", false: "of"}[w.of.write]
		d.violation("host memory was written while a copy %s it was pending: %d bytes, stream %#x", which, w.bytes, q.handle)
	}
	if w.count != nil && err == nil {
		w.count.Copies++
		w.count.Bytes += w.bytes
	}
	if err != nil {
		q.device.lose(err)
	}
}

// drop unregisters a piece of work, done or not. driver.mu is held.
func (w *work) drop(d *Driver) {
	d.touched = slices.DeleteFunc(d.touched, func(t *transfer) bool { return t == w.of && t != nil })
	w.of = nil
}

// wait waits until a condition holds, which only work changes. If the driver is lazy, the caller does the work. d.mu is
// held, but released meanwhile.
func (d *Driver) wait(until func() bool) {
	for !until() {
		if !d.config.Lazy || !d.step() {
			d.changed.Wait()
		}
	}
}

// Stream implements accel.Stream.
type Stream struct {
	dev     *Device
	q       *queue // nil for an unknown handle
	adopted bool
	handle  uintptr // of an adopted stream, as given
}

// Handle implements accel.Stream.
func (s *Stream) Handle() uintptr {
	if s.adopted {
		return s.handle
	}
	return s.q.handle
}

// enter counts a call and returns an error if it is not possible. driver.mu is held.
func (s *Stream) enter(op Op, bytes int) error {
	if err := s.dev.driver.called(op, s.dev, bytes); err != nil {
		return err
	}
	switch {
	case s.q == nil:
		return s.dev.fault(backend.ErrInternal, "invalid resource handle (400): no stream of the device has handle %#x", s.handle)
	case s.q.closed && s.adopted:
		return s.dev.fault(backend.ErrInternal, "invalid resource handle (400): the stream of handle %#x is closed", s.handle)
	case s.q.closed:
		return s.dev.fault(backend.ErrClosed, "stream")
	}
	return nil
}

// ToHost implements accel.Stream.
func (s *Stream) ToHost(dst []byte, src accel.Address) error { return s.transfer(dst, src, true) }

// ToDevice implements accel.Stream.
func (s *Stream) ToDevice(dst accel.Address, src []byte) error { return s.transfer(src, dst, false) }

// transfer starts a copy between host and device. If the host memory is not pinned, it also waits
// for the copy.
func (s *Stream) transfer(host []byte, a accel.Address, toHost bool) error {
	d := s.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.enter(Copy, len(host)); err != nil || len(host) == 0 {
		return err
	}
	memory, err := s.dev.memory(a, len(host))
	if err != nil {
		return err
	}
	pinned := d.isPinned(host)
	t := d.touch(host, toHost)
	w := &work{bytes: len(host), of: t, watch: t.watched}
	copies := &d.stats.ToDevice
	w.do = func() error { copy(memory, host); return nil }
	if toHost {
		copies = &d.stats.ToHost
		w.do = func() error { copy(host, memory); return nil }
	}
	if w.count = &copies.Pageable; pinned {
		w.count = &copies.Pinned
	}
	d.mu.Unlock()
	t.begin(w.watch)
	d.mu.Lock()
	if memory, err = s.dev.memory(a, len(host)); err != nil || s.q.closed { // may have changed without the lock
		w.drop(d)
		if err == nil {
			err = s.dev.fault(backend.ErrClosed, "stream")
		}
		return err
	}
	s.q.put(w)
	if pinned {
		return nil
	}
	n := s.q.queued
	d.wait(func() bool { return s.q.done >= n })
	return s.dev.lost
}

// Within implements accel.Stream.
func (s *Stream) Within(dst, src accel.Address, n int) error {
	d := s.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.enter(Copy, n); err != nil || n == 0 {
		return err
	}
	to, err := s.dev.memory(dst, n)
	if err != nil {
		return err
	}
	from, err := s.dev.memory(src, n)
	if err != nil {
		return err
	}
	if dst < src+accel.Address(n) && src < dst+accel.Address(n) {
		d.violation("a copy within the device of %d bytes overlaps itself", n)
	}
	s.q.put(&work{bytes: n, do: func() error { copy(to, from); return nil }, count: &d.stats.Within})
	return nil
}

// Do runs a function as a kernel, in the order of the stream. The function gets access to device memory through mem.
func (s *Stream) Do(kernel func(mem func(a accel.Address, n int) []byte)) error {
	d := s.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.enter(Kernel, 0); err != nil {
		return err
	}
	s.q.put(&work{do: func() error {
		kernel(func(a accel.Address, n int) []byte {
			d.mu.Lock()
			defer d.mu.Unlock()
			b, err := s.dev.memory(a, n)
			if err != nil {
				panic(err)
			}
			return b
		})
		return nil
	}})
	return nil
}

// Sync implements accel.Stream.
func (s *Stream) Sync() error {
	d := s.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := s.enter(Sync, 0)
	if s.q == nil || s.q.closed {
		return failed
	}
	n := s.q.queued
	d.wait(func() bool { return s.q.done >= n })
	if failed == nil {
		failed = s.dev.lost
	}
	return failed
}

// Close implements accel.Stream. It waits for the stream's work.
func (s *Stream) Close() error {
	d := s.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.adopted {
		return nil
	}
	failed := s.enter(CloseStream, 0)
	if s.q.closed {
		return failed
	}
	s.q.closed = true
	d.wait(func() bool { return len(s.q.work) == 0 })
	d.queues = slices.DeleteFunc(d.queues, func(q *queue) bool { return q == s.q })
	d.stats.Streams--
	if failed == nil {
		failed = s.dev.lost
	}
	return failed
}
