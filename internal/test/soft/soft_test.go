package soft

import (
	"errors"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/span"
)

// device returns a device of a new driver, which must be empty when the test ends.
func device(t *testing.T, c Config) (*Driver, accel.Device) {
	t.Helper()
	d := New(c)
	t.Cleanup(func() {
		if err := d.Left(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	dev, err := d.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	return d, dev
}

func must[T any](t *testing.T) func(T, error) T {
	return func(x T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless err wraps the sentinel and contains all texts.
func want(t *testing.T, err, sentinel error, texts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("error %v, want %v", err, sentinel)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not say %q", err, s)
		}
	}
}

// faults reports whether reading a byte faults.
func faults(b []byte) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	sink = b[0]
	return false
}

var sink byte

func TestHostAccessFaults(t *testing.T) {
	_, dev := device(t, Config{})
	a := must[accel.Address](t)(dev.Alloc(1000))
	if !faults(dev.View(a, 1000)) || !faults(dev.View(a+999, 1)) {
		t.Error("the host can read the device's memory")
	}
	if dev.View(a, 1001) != nil || dev.View(a+1000, 1) != nil || dev.View(1, 1) != nil {
		t.Error("a view of what the device has not")
	}
	ok(t, dev.Free(a))
}

func TestViewIsReadableWithHostCanRead(t *testing.T) {
	_, dev := device(t, Config{HostCanRead: true})
	a := must[accel.Address](t)(dev.Alloc(1000))
	b := must[[]byte](t)(dev.Pin(1000))
	view := dev.View(a+1, 999)
	if accel.Address(span.Address(view)) != a+1 {
		t.Errorf("the view of address %#x is at %#x", a+1, span.Address(view))
	}
	copy(view, "hello")
	s := dev.Adopt(0)
	ok(t, s.ToHost(b[:6], a))
	ok(t, s.Sync())
	if string(b[1:6]) != "hello" {
		t.Errorf("read %q", b[:6])
	}
	ok(t, dev.Free(a))
	ok(t, dev.Unpin(b))
}

func TestAllocationsAreLimited(t *testing.T) {
	_, dev := device(t, Config{Memory: 4096})
	a := must[accel.Address](t)(dev.Alloc(3000))
	_, err := dev.Alloc(1100) // 3000 bytes take 3072
	want(t, err, backend.ErrAlloc, "soft: device 0: out of memory", "1100 bytes", "1024 of 4096")
	free, total, err := dev.Memory()
	if free != 1024 || total != 4096 || err != nil {
		t.Errorf("%d of %d free, %v", free, total, err)
	}
	ok(t, dev.Free(a))
	for range 50 {
		b := must[accel.Address](t)(dev.Alloc(4000))
		if b == a {
			t.Error("the address of freed memory is used again")
		}
		ok(t, dev.Free(b))
	}
	want(t, dev.Unpin(make([]byte, 10)), backend.ErrBuffer, "not returned by Pin")
}

func TestUnavailableDriverIsNotSupported(t *testing.T) {
	d := New(Config{Name: "cuda", Unavailable: "libcuda.so.1: no such file"})
	_, err := d.Device(0)
	want(t, err, backend.ErrNotSupported, "cuda: libcuda.so.1: no such file")
}

// TestLazyWorkWaitsForCallers checks that work is done only while a caller waits, in an order among
// streams that depends on the seed.
func TestLazyWorkWaitsForCallers(t *testing.T) {
	order := func(seed uint64) string {
		_, dev := device(t, Config{Lazy: true, Seed: seed})
		var did []byte
		var streams []accel.Stream
		for i := range 3 {
			s := must[accel.Stream](t)(dev.Stream())
			streams = append(streams, s)
			for range 4 {
				ok(t, s.(*Stream).Do(func(func(accel.Address, int) []byte) { did = append(did, 'a'+byte(i)) }))
			}
		}
		if len(did) > 0 {
			t.Error("work was done before a caller waited")
		}
		for _, s := range streams {
			ok(t, s.Close())
		}
		return string(did)
	}
	seen := make(map[string]bool)
	for seed := range uint64(10) {
		first := order(seed)
		if len(first) != 12 {
			t.Errorf("seed %d: %q is not all the work", seed, first)
		}
		for range 3 {
			if again := order(seed); again != first {
				t.Errorf("seed %d: %s, and then %s", seed, first, again)
			}
		}
		seen[first] = true
	}
	if len(seen) < 5 {
		t.Errorf("10 seeds give the orders %v", seen)
	}
}

// TestHostAccessDuringCopyIsDetected checks that accesses to host memory during a copy are detected.
func TestHostAccessDuringCopyIsDetected(t *testing.T) {
	for _, c := range []struct {
		name   string
		touch  func(t *testing.T, pin []byte)
		toHost bool
		found  string
	}{
		{"source written", func(t *testing.T, pin []byte) { pin[7]++ }, false, "written while a copy of it"},
		{"destination written", func(t *testing.T, pin []byte) { pin[5000]++ }, true, "written while a copy to it"},
		{"destination read", func(t *testing.T, pin []byte) {
			if !filled(pin) {
				t.Error("who looks early does not see junk")
			}
		}, true, ""},
		{"source read", func(t *testing.T, pin []byte) { sink = pin[0] }, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := New(Config{Lazy: true})
			defer d.Close()
			dev := must[accel.Device](t)(d.Device(0))
			const n = 10001
			a, pin := must[accel.Address](t)(dev.Alloc(n)), must[[]byte](t)(dev.Pin(n))
			for i := range pin {
				pin[i] = byte(i)
			}
			s := dev.Adopt(0)
			if c.toHost {
				ok(t, s.ToHost(pin, a))
			} else {
				ok(t, s.ToDevice(a, pin))
			}
			c.touch(t, pin)
			ok(t, s.Sync())
			v := d.Stats().Violations
			if c.found == "" && len(v) > 0 || c.found != "" && (len(v) != 1 || !strings.Contains(v[0], c.found)) {
				t.Errorf("found %q, want %q", v, c.found)
			}
			ok(t, dev.Free(a))
			ok(t, dev.Unpin(pin))
			if (d.Left() == nil) != (c.found == "") {
				t.Errorf("left: %v", d.Left())
			}
		})
	}
}

func TestUnpinDuringCopyIsRejected(t *testing.T) {
	d := New(Config{Lazy: true})
	defer d.Close()
	dev := must[accel.Device](t)(d.Device(0))
	a, pin := must[accel.Address](t)(dev.Alloc(10)), must[[]byte](t)(dev.Pin(10))
	s := dev.Adopt(0)
	ok(t, s.ToHost(pin, a))
	want(t, dev.Unpin(pin), backend.ErrBuffer, "pending")
	ok(t, s.Sync())
	ok(t, dev.Unpin(pin))
	ok(t, dev.Free(a))
	if err := d.Left(); err == nil || !strings.Contains(err.Error(), "unpinned while") {
		t.Errorf("left: %v", err)
	}
}
