package tensor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// gpus returns this machine's devices. Without one the test is skipped: the same is tested with devices
// in software.
func gpus(t testing.TB) []*Device {
	t.Helper()
	n, err := CUDACount()
	if err != nil {
		t.Skipf("no device: %v", err)
	}
	all := make([]*Device, n)
	for i := range all {
		if all[i], err = CUDA(i); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, d := range all {
			d.Trim()
		}
	})
	return all
}

// Between every two places of a machine with GPUs.
func TestGPUTensorCopy(t *testing.T) {
	places := append([]*Device{CPU}, gpus(t)...)
	r := rand.New(rand.NewPCG(12, 0))
	for _, dst := range places {
		for _, src := range places {
			t.Run(fmt.Sprintf("%v to %v", src, dst), func(t *testing.T) {
				for range 20 {
					shape := randomShape(r, 4, 4)
					copied[int8](t, r, shape, 2, true, dst, src)
					copied[float64](t, r, shape, 1, false, dst, src)
					copied[complex128](t, r, shape, 0, true, dst, src)
				}
				copied[complex128](t, r, []int{17001}, 0, false, dst, src)
				copied[complex128](t, r, []int{7, 10001}, 7, false, dst, src)
				copied[int32](t, r, []int{13, 14, 15}, 0, true, dst, src)
				copied[float32](t, r, []int{5<<20 + 1}, 0, false, dst, src)
			})
		}
	}
}

// What a GPU has not is an error, and what was taken before it is given back.
func TestGPUTensorErrors(t *testing.T) {
	d := gpus(t)[0]
	free, total, err := d.Memory()
	if err != nil || free <= 0 || free > total {
		t.Fatalf("%d of %d bytes are free, %v", free, total, err)
	}
	if x, err := NewOn[uint8](d, total+1); !errors.Is(err, cohort.ErrAlloc) {
		t.Errorf("more than the memory of %v: %v, %v", d, x, err)
	}
	if x, err := At[float32](d, 1<<12, 16); !errors.Is(err, cohort.ErrBuffer) {
		t.Errorf("an address that nobody has: %v, %v", x, err)
	}
	// Were it not given back, twice as much as was free would be taken. What is free afterwards says nothing: others
	// use the device meanwhile.
	const rounds = 16
	n := free / (rounds / 2)
	for i := range rounds {
		x, err := NewOn[uint8](d, 1, n)
		if err != nil {
			t.Fatalf("round %d of %d: %v", i, rounds, err)
		}
		if _, err := NewOn[uint8](d, total); !errors.Is(err, cohort.ErrAlloc) {
			t.Errorf("all of the memory of %v, of which some is in use: %v", d, err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	x := newOn[float32](t, d, 16)
	if y, err := At[float32](d, x.Address(), 16); err != nil || y.Len() != 16 {
		t.Errorf("memory of the device: %v, %v", y, err)
	}
}

// BenchmarkGPUTensorCopy has Copy beside the driver's own copies of memory that is not pinned, which it is
// not to be slower than, and of pinned memory, which is what the device can do.
func BenchmarkGPUTensorCopy(b *testing.B) {
	d := gpus(b)[0]
	for _, n := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20} {
		host, err := New[uint8](n)
		if err != nil {
			b.Fatal(err)
		}
		for i := range host.Data() {
			host.Data()[i] = uint8(i)
		}
		far := newOn[uint8](b, d, n)
		pinned, err := d.acc.Pin(n)
		if err != nil {
			b.Fatal(err)
		}
		copy(pinned, host.Data())
		up := func(from []byte) error { return errors.Join(far.stream.ToDevice(far.at, from), far.stream.Sync()) }
		down := func(to []byte) error { return errors.Join(far.stream.ToHost(to, far.at), far.stream.Sync()) }
		for _, c := range []struct {
			name string
			copy func() error
		}{
			{"up/copy", func() error { return Copy(far, host) }},
			{"up/pageable", func() error { return up(host.Data()) }},
			{"up/pinned", func() error { return up(pinned) }},
			{"down/copy", func() error { return Copy(host, far) }},
			{"down/pageable", func() error { return down(host.Data()) }},
			{"down/pinned", func() error { return down(pinned) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := c.copy(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := errors.Join(d.acc.Unpin(pinned), far.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
