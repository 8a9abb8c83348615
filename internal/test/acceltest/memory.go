package acceltest

import (
	"errors"
	"math"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// testAllocation checks that allocations are aligned, do not overlap, and keep their contents.
func testAllocation(r rig) {
	sizes := []int{1, 2, 255, 256, 257, 4096, 100_000, 1<<20 + 1}
	at := make([]accel.Address, len(sizes))
	for i, n := range sizes {
		at[i] = r.alloc(n)
		if at[i] == 0 || at[i]%16 != 0 {
			r.Errorf("%d bytes at %#x: 0, or not aligned", n, at[i])
		}
		for j, m := range sizes[:i] {
			if at[i] < at[j]+accel.Address(m) && at[j] < at[i]+accel.Address(n) {
				r.Errorf("%d bytes at %#x and %d at %#x overlap", n, at[i], m, at[j])
			}
		}
	}
	s := r.stream()
	for i, n := range sizes {
		r.ok(s.ToDevice(at[i], noise(uint64(i), make([]byte, n))))
	}
	for i, n := range sizes {
		same(r, "allocation", r.read(s, at[i], n), noise(uint64(i), make([]byte, n)))
	}
}

func testTooMuch(r rig) {
	free, total, err := r.dev.Memory()
	if err != nil || free <= 0 || free > total {
		r.Fatalf("%d of %d bytes free, %v", free, total, err)
	}
	for _, n := range []int{total + 1, math.MaxInt / 8} {
		_, err = r.dev.Alloc(n)
		want(r, err, backend.ErrAlloc)
	}
	for _, n := range []int{0, -1, math.MinInt / 2} {
		_, err = r.dev.Alloc(n)
		want(r, err, backend.ErrCount)
		_, err = r.dev.Pin(n)
		want(r, err, backend.ErrCount)
	}
	a := r.alloc(100) // the device still works
	s := r.stream()
	r.ok(s.ToDevice(a, []byte("hello")))
	same(r, "after too much", r.read(s, a, 5), []byte("hello"))
}

// testAgain allocates many times more of everything than fits, freeing it each time.
func testAgain(r rig) {
	free, _, err := r.dev.Memory()
	r.ok(err)
	for range 20 {
		a, err := r.dev.Alloc(free / 4)
		r.ok(err)
		r.ok(r.dev.Free(a))
	}
	for range 50 {
		b, err := r.dev.Pin(1 << 20)
		r.ok(err)
		b[0], b[len(b)-1] = 1, 2
		r.ok(r.dev.Unpin(b))
	}
	for range 500 {
		s, err := r.dev.Stream()
		r.ok(err)
		e, err := r.dev.Event()
		r.ok(err)
		r.ok(s.Record(e))
		r.ok(e.Close())
		r.ok(s.Close())
	}
}

func testRoom(r rig) {
	const n = 100_000
	a := r.alloc(n)
	for _, off := range []int{0, 1, 777, n - 1} {
		room, err := r.dev.Room(a + accel.Address(off))
		if err != nil || room != n-off {
			r.Errorf("room at offset %d: %d, %v, want %d", off, room, err, n-off)
		}
	}
	heap := make([]byte, 100)
	pin := r.pin(100)
	for _, a := range []accel.Address{0, 1, address(heap), address(pin), ^accel.Address(0)} {
		_, err := r.dev.Room(a)
		want(r, err, backend.ErrBuffer)
	}
	heap[0] = 1 // keeps it alive until here

	b, err := r.dev.Alloc(n)
	r.ok(err)
	r.ok(r.dev.Free(b))
	_, err = r.dev.Room(b)
	want(r, err, backend.ErrBuffer)
	want(r, r.dev.Free(b), backend.ErrBuffer)
	for _, a := range []accel.Address{0, a + 1, a + n, address(heap), address(pin)} {
		want(r, r.dev.Free(a), backend.ErrBuffer)
	}
}

func testView(r rig) {
	a := r.alloc(1000)
	v := r.dev.View(a+3, 900)
	if len(v) != 900 || address(v) != a+3 {
		r.Errorf("the view of 900 bytes at %#x is of %d at %#x", a+3, len(v), address(v))
	}
}

// testPin checks that pinned memory can be used, and which arguments Unpin rejects.
func testPin(r rig) {
	for _, n := range []int{1, 4095, 4096, 4097, 3<<20 + 5} {
		b := r.pin(n)
		noise(uint64(n), b)
		same(r, "pinned memory", b, noise(uint64(n), make([]byte, n)))
	}
	b, err := r.dev.Pin(1000)
	r.ok(err)
	for _, other := range [][]byte{nil, {}, make([]byte, 10), b[1:]} {
		want(r, r.dev.Unpin(other), backend.ErrBuffer)
	}
	r.ok(r.dev.Unpin(b))
	want(r, r.dev.Unpin(b), backend.ErrBuffer)
}

// testClosed checks that closed objects return ErrClosed.
func testClosed(r rig) {
	a := r.alloc(10)
	closed, err := r.dev.Stream()
	r.ok(err)
	r.ok(closed.Close())
	e := r.event()
	for _, err := range []error{
		closed.ToHost(make([]byte, 1), a), closed.ToDevice(a, make([]byte, 1)), closed.Within(a, a+1, 1),
		closed.Record(e), closed.Follow(e), closed.Sync(), closed.Close(),
	} {
		want(r, err, backend.ErrClosed)
	}
	gone, err := r.dev.Event()
	r.ok(err)
	r.ok(gone.Close())
	s := r.stream()
	_, doneErr := gone.Done()
	for _, err := range []error{s.Record(gone), s.Follow(gone), gone.Sync(), doneErr, gone.Close()} {
		want(r, err, backend.ErrClosed)
	}
	if s.Record(nil) == nil || s.Follow(nil) == nil {
		r.Error("an event that is nil was recorded or followed")
	}
}

// testBeyond checks that copies beyond an allocation do not start.
func testBeyond(r rig) {
	const n = 1000
	a, b := r.alloc(n), r.alloc(n)
	heap, pin := noise(1, make([]byte, n+1)), noise(2, r.pin(n+1))
	s := r.stream()
	for _, host := range [][]byte{heap, pin} {
		before := append([]byte(nil), host...)
		for _, err := range []error{
			s.ToDevice(a, host), s.ToDevice(a+1, host[:n]), s.ToDevice(a+n, host[:1]), s.ToDevice(0, host[:1]), s.ToDevice(address(host), host[:1]),
			s.ToHost(host, a), s.ToHost(host[:n], a+1), s.ToHost(host[:1], a+n), s.ToHost(host[:1], 0), s.ToHost(host[:1], address(host)),
			s.Within(a, b, n+1), s.Within(a+1, b, n), s.Within(a, b+1, n), s.Within(a, 0, 1), s.Within(0, a, 1),
			s.Within(a, address(host), 1), s.Within(address(host), a, 1), s.Within(a, b, -1),
		} {
			want(r, err, backend.ErrBuffer)
		}
		r.ok(s.Sync())
		same(r, "host memory after copies that fail", host, before)
	}
	r.ok(s.ToDevice(a, heap[:n]))
	same(r, "device memory after copies that fail", r.read(s, a, n), heap[:n])
}

// testOther checks the use of another device's memory, streams and events.
func testOther(r, o rig) {
	a, foreign := r.alloc(100), o.alloc(100)
	e, s, other := o.event(), r.stream(), o.stream()
	_, err := r.dev.Room(foreign)
	want(r, err, backend.ErrBuffer)
	want(r, r.dev.Free(foreign), backend.ErrBuffer)
	want(r, s.ToDevice(foreign, make([]byte, 1)), backend.ErrBuffer)
	want(r, s.Within(a, foreign, 1), backend.ErrBuffer)
	if err := s.Record(e); !errors.Is(err, backend.ErrInternal) {
		r.Errorf("recording another device's event: %v", err)
	}
	// Following one is allowed; data copied through pinned memory arrive.
	const n = 1 << 20
	x, y, pin := o.alloc(n), r.alloc(n), r.pin(n)
	r.ok(other.ToDevice(x, noise(5, make([]byte, n))))
	r.ok(other.ToHost(pin, x))
	r.ok(other.Record(e))
	r.ok(s.Follow(e))
	r.ok(s.ToDevice(y, pin))
	same(r, "from device to device", r.read(s, y, n), noise(5, make([]byte, n)))
	r.ok(other.Sync())
}
