package soft

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// TestFailingCallsHaveNoEffect lets the second call of each kind fail, and checks that it has no
// effect and that the next call works.
func TestFailingCallsHaveNoEffect(t *testing.T) {
	type parts struct {
		dev accel.Device
		a   accel.Address
		pin []byte
		s   accel.Stream
		e   accel.Event
	}
	mine := errors.New("mine")
	memory := func(p parts) error {
		a, err := p.dev.Alloc(10)
		if err == nil {
			err = p.dev.Free(a)
		}
		return err
	}
	pinned := func(p parts) error {
		b, err := p.dev.Pin(10)
		if err == nil {
			err = p.dev.Unpin(b)
		}
		return err
	}
	stream := func(p parts) error {
		s, err := p.dev.Stream()
		if err == nil {
			err = s.Close()
		}
		return err
	}
	event := func(p parts) error {
		e, err := p.dev.Event()
		if err == nil {
			err = e.Close()
		}
		return err
	}
	for _, c := range []struct {
		op       Op
		sentinel error
		call     func(p parts) error
	}{
		{Alloc, backend.ErrAlloc, memory},
		{Free, backend.ErrInternal, memory},
		{Pin, backend.ErrAlloc, pinned},
		{Unpin, backend.ErrInternal, pinned},
		{NewStream, backend.ErrInternal, stream},
		{CloseStream, backend.ErrInternal, stream},
		{NewEvent, backend.ErrInternal, event},
		{CloseEvent, backend.ErrInternal, event},
		{Memory, backend.ErrInternal, func(p parts) error { _, _, err := p.dev.Memory(); return err }},
		{Room, backend.ErrInternal, func(p parts) error { _, err := p.dev.Room(p.a); return err }},
		{Copy, backend.ErrInternal, func(p parts) error { return p.s.ToHost(p.pin, p.a) }},
		{Copy, backend.ErrInternal, func(p parts) error { return p.s.ToDevice(p.a, p.pin) }},
		{Copy, backend.ErrInternal, func(p parts) error { return p.s.Within(p.a, p.a+10, 5) }},
		{Record, backend.ErrInternal, func(p parts) error { return p.s.Record(p.e) }},
		{Follow, backend.ErrInternal, func(p parts) error { return p.s.Follow(p.e) }},
		{Sync, backend.ErrInternal, func(p parts) error { return p.s.Sync() }},
		{EventSync, backend.ErrInternal, func(p parts) error { return p.e.Sync() }},
		{Done, backend.ErrInternal, func(p parts) error { _, err := p.e.Done(); return err }},
	} {
		t.Run(string(c.op), func(t *testing.T) {
			d, dev := device(t, Config{})
			p := parts{dev, must[accel.Address](t)(dev.Alloc(100)), must[[]byte](t)(dev.Pin(50)), must[accel.Stream](t)(dev.Stream()), must[accel.Event](t)(dev.Event())}
			for _, own := range []error{nil, mine} {
				d.SetFail(Nth(c.op, 2, own))
				ok(t, c.call(p))
				d.SetFail(Nth(c.op, 1, own))
				if own != nil {
					want(t, c.call(p), mine)
				} else {
					want(t, c.call(p), c.sentinel, "soft: ")
				}
				ok(t, c.call(p))
			}
			d.SetFail(nil)
			ok(t, p.s.Sync())
			ok(t, p.s.Close())
			ok(t, p.e.Close())
			ok(t, dev.Unpin(p.pin))
			ok(t, dev.Free(p.a))
		})
	}
}

// TestBrokenDeviceRejectsWork checks that everything fails after a failure in a stream, and that
// everything can still be freed.
func TestBrokenDeviceRejectsWork(t *testing.T) {
	const says = "unknown error"
	for _, c := range []struct {
		name string
		work func(s *Stream, a accel.Address) error
	}{
		{"a kernel", func(s *Stream, a accel.Address) error { return s.Do(func(func(accel.Address, int) []byte) {}) }},
		{"a copy", func(s *Stream, a accel.Address) error { return s.Within(a, a+50, 5) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, dev := device(t, Config{Devices: 2, Lazy: true})
			a, pin := must[accel.Address](t)(dev.Alloc(100)), must[[]byte](t)(dev.Pin(50))
			s, e := must[accel.Stream](t)(dev.Stream()), must[accel.Event](t)(dev.Event())
			d.SetFail(Nth(Run, 1, nil))
			ok(t, c.work(s.(*Stream), a))
			_ = s.ToHost(pin, a) // dropped, or fails
			_ = s.Record(e)
			want(t, s.Sync(), backend.ErrInternal, says)
			if !filled(pin) {
				t.Error("a copy was done after the failure")
			}
			d.SetFail(nil)
			_, err := dev.Alloc(1)
			want(t, err, backend.ErrInternal, says)
			want(t, s.ToHost(pin, a), backend.ErrInternal, says)
			want(t, s.ToHost(make([]byte, 1), a), backend.ErrInternal, says)
			want(t, e.Sync(), backend.ErrInternal, says)
			_, err = e.Done()
			want(t, err, backend.ErrInternal, says)
			want(t, s.Close(), backend.ErrInternal, says)
			want(t, e.Close(), backend.ErrInternal, says)
			want(t, dev.Free(a), backend.ErrInternal, says)
			want(t, dev.Unpin(pin), backend.ErrInternal, says)

			other := must[accel.Device](t)(d.Device(1))
			b := must[accel.Address](t)(other.Alloc(1))
			ok(t, other.Adopt(0).ToDevice(b, []byte{1}))
			ok(t, other.Free(b))
		})
	}
}

func TestAdoptOfUnknownHandle(t *testing.T) {
	_, dev := device(t, Config{})
	s := dev.Adopt(4711)
	want(t, s.Sync(), backend.ErrInternal, "invalid resource handle", "0x1267")
	ok(t, s.Close())
}
