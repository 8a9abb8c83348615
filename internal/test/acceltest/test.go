package acceltest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/span"
)

// Test runs the suite. The driver must have a device.
func Test(t *testing.T, d accel.Driver) {
	n, err := d.Devices()
	if err != nil || n < 1 {
		t.Fatalf("%d devices, %v", n, err)
	}
	if d.Name() == "" {
		t.Error("the driver has no name")
	}
	t.Run("Index", func(t *testing.T) { testIndex(t, d, n) })
	for i := range n {
		dev, err := d.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name string
			run  func(r rig)
		}{
			{"Allocation", testAllocation}, {"TooMuch", testTooMuch}, {"Again", testAgain},
			{"Room", testRoom}, {"View", testView}, {"Pin", testPin}, {"Closed", testClosed}, {"Beyond", testBeyond},
			{"Nothing", testNothing}, {"Script", testScript}, {"Pageable", testPageable}, {"Adopt", testAdopt},
			{"Event", testEvent}, {"Follow", testFollow}, {"FollowOlder", testFollowOlder}, {"Threads", testThreads},
		} {
			t.Run(fmt.Sprintf("%d/%s", i, c.name), func(t *testing.T) { c.run(rig{t, dev}) })
		}
		if i > 0 {
			first, err := d.Device(0)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprintf("%d/Other", i), func(t *testing.T) { testOther(rig{t, dev}, rig{t, first}) })
		}
	}
}

func testIndex(t *testing.T, d accel.Driver, n int) {
	for i := range n {
		dev, err := d.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := d.Device(i); again != dev || err != nil {
			t.Errorf("device %d is another one the second time: %v", i, err)
		}
		if dev.Index() != i || dev.Model() == "" {
			t.Errorf("device %d has index %d and model %q", i, dev.Index(), dev.Model())
		}
	}
	for _, i := range []int{-1, n, n + 1000, math.MinInt, math.MaxInt} {
		_, err := d.Device(i)
		want(t, err, backend.ErrNotSupported)
	}
}

// A rig makes memory, streams and events of a device, and frees them when the test ends.
type rig struct {
	*testing.T
	dev accel.Device
}

func (r rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// later frees something when the test ends.
func (r rig) later(free func() error) {
	r.Cleanup(func() {
		if err := free(); err != nil {
			r.Error(err)
		}
	})
}

func (r rig) alloc(n int) accel.Address {
	r.Helper()
	a, err := r.dev.Alloc(n)
	r.ok(err)
	r.later(func() error { return r.dev.Free(a) })
	return a
}

func (r rig) pin(n int) []byte {
	r.Helper()
	b, err := r.dev.Pin(n)
	r.ok(err)
	if len(b) != n {
		r.Fatalf("%d pinned bytes, want %d", len(b), n)
	}
	r.later(func() error { return r.dev.Unpin(b) })
	return b
}

// stream should be called last, so that the stream is closed first: cleanups run in reverse order.
func (r rig) stream() accel.Stream {
	r.Helper()
	s, err := r.dev.Stream()
	r.ok(err)
	r.later(s.Close)
	return s
}

func (r rig) event() accel.Event {
	r.Helper()
	e, err := r.dev.Event()
	r.ok(err)
	r.later(e.Close)
	return e
}

// read returns the contents of device memory.
func (r rig) read(s accel.Stream, a accel.Address, n int) []byte {
	r.Helper()
	b := make([]byte, n)
	r.ok(s.ToHost(b, a))
	r.ok(s.Sync())
	return b
}

// want fails the test unless err wraps the sentinel and has a text.
func want(t testing.TB, err, sentinel error) {
	t.Helper()
	var f *backend.Fault
	if !errors.Is(err, sentinel) || !errors.As(err, &f) || f.Text == "" {
		t.Errorf("error %v, want %v and why", err, sentinel)
	}
}

// same fails the test unless got and expect are equal.
func same(t testing.TB, what string, got, expect []byte) {
	t.Helper()
	if bytes.Equal(got, expect) {
		return
	}
	if len(got) != len(expect) {
		t.Fatalf("%s: %d bytes, want %d", what, len(got), len(expect))
	}
	for i, b := range got {
		if b != expect[i] {
			t.Fatalf("%s: byte %d of %d is %#x, want %#x", what, i, len(got), b, expect[i])
		}
	}
	t.Fatalf("%s: memory that should stand still was wrong, and then right", what)
}

// noise fills b with bytes that depend on the seed, and returns it. It repeats random bytes with a
// prime period, so that swapped pieces are detected.
func noise(seed uint64, b []byte) []byte {
	var tile [8191]byte
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range tile {
		if i >= len(b) {
			break
		}
		tile[i] = byte(r.Uint32())
	}
	for i := 0; i < len(b); {
		i += copy(b[i:], tile[:])
	}
	return b
}

// address returns the address of host memory.
func address(b []byte) accel.Address { return accel.Address(span.Address(b)) }
