package cuda

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/acceltest"
)

// device0 returns the first device. Without one, the error must give the reason, and the test is
// skipped.
func device0(t testing.TB) accel.Device {
	t.Helper()
	dev, err := Driver().Device(0)
	if err == nil {
		return dev
	}
	var f *backend.Fault
	if !errors.Is(err, backend.ErrNotSupported) || !errors.As(err, &f) || len(f.Text) < len("cuda: x") {
		t.Fatalf("no device, and the error is %v", err)
	}
	t.Skipf("no device: %v", err)
	return nil
}

// TestGPUSuite runs the suite on this machine's devices.
func TestGPUSuite(t *testing.T) {
	device0(t)
	acceltest.Test(t, Driver())
}

// TestGPUDevices lists the devices.
func TestGPUDevices(t *testing.T) {
	device0(t)
	n, err := Driver().Devices()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		dev, err := Driver().Device(i)
		if err != nil {
			t.Fatal(err)
		}
		free, total, err := dev.Memory()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("device %d: %s, %d of %d MiB free", i, dev.Model(), free>>20, total>>20)
	}
}

// BenchmarkGPUCopy measures copies between host and device, one at a time.
func BenchmarkGPUCopy(b *testing.B) {
	dev := device0(b)
	s, err := dev.Stream()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	free, _, err := dev.Memory()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{8, 64 << 10, 2 << 20, 4 << 20, 64 << 20, 1 << 30} {
		if n > free/2 {
			b.Logf("no copies of %d bytes, as %d are free", n, free)
			break
		}
		a, err := dev.Alloc(n)
		if err != nil {
			b.Fatal(err)
		}
		pin, err := dev.Pin(n)
		if err != nil {
			b.Fatal(err)
		}
		heap := make([]byte, n)
		clear(pin)
		for _, c := range []struct {
			name string
			copy func() error
		}{
			{"ToHost/pinned", func() error { return s.ToHost(pin, a) }},
			{"ToHost/pageable", func() error { return s.ToHost(heap, a) }},
			{"ToDevice/pinned", func() error { return s.ToDevice(a, pin) }},
			{"ToDevice/pageable", func() error { return s.ToDevice(a, heap) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					if err := c.copy(); err != nil {
						b.Fatal(err)
					}
					if err := s.Sync(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := dev.Unpin(pin); err != nil {
			b.Fatal(err)
		}
		if err := dev.Free(a); err != nil {
			b.Fatal(err)
		}
	}
}
