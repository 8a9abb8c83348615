package tensor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// scripts/gpu-test runs these tests on GPUs; other tests here check them with a device in software.

// TestGPUSameBits compares results on GPUs with those on the processor.
func TestGPUSameBits(t *testing.T) { sameBits(t, gpus(t), 3<<20+17) }

func TestSameBitsOnEveryDevice(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{Devices: 2, Lazy: true, Seed: 5})
	sameBits(t, devs, 3001)
}

// TestGPUProcesses is TestGPUSameBits with a process for each rank, on every backend. An MPI library that takes device
// memory gets it.
func TestGPUProcesses(t *testing.T) {
	gpus(t)
	onProcesses(t, []int{2}, "same bits on GPUs")
}

func init() {
	programs["same bits on GPUs"] = func(w *cohort.Comm) error {
		devs := must.Get(everyDevice())
		return sameBitsOnRank(w, devs, nil, 3<<20+17)
	}
}

func TestGPUMessagesDoNotAllocate(t *testing.T) { messagesDoNotAllocate(t, gpus(t)[0]) }

// sameBits starts two ranks for sameBitsOnRank.
func sameBits(t *testing.T, devs []*Device, n int) {
	cfg := &Config{}
	if n < 1<<20 {
		cfg.Chunk = 2048
	}
	err := cohort.Run(context.Background(), 2, func(w *cohort.Comm) error { return sameBitsOnRank(w, devs, cfg, n) })
	if err != nil {
		t.Error(err)
	}
}

// sameBitsOnRank does every collective of two ranks, and messages, on the processor and on devices. Rank
// r has device r, or the ranks share one.
func sameBitsOnRank(w *cohort.Comm, devs []*Device, cfg *Config, n int) error {
	c, err := NewComm(w, cfg)
	if err != nil {
		return err
	}
	d := devs[w.Rank()%len(devs)]
	return errors.Join(
		sameBitsOf(c, d, n, func(i int) float32 { return float32(i%1009)/7 + float32(w.Rank()) }),
		sameBitsOf(c, d, n, func(i int) cohort.Float16 { return cohort.ToFloat16(float32(i%1009)/512 + float32(w.Rank())) }),
		sameBitsOf(c, d, n, func(i int) int64 { return int64(i)*1_000_003 - int64(w.Rank()) }),
		c.Close())
}

func sameBitsOf[T cohort.Number](c *Comm, d *Device, n int, value func(i int) T) error {
	for _, op := range []struct {
		name       string
		send, recv int // lengths
		do         func(send, recv *Tensor[T]) error
	}{
		{"bcast", n, n, func(_, recv *Tensor[T]) error { return Bcast(c, recv, 1) }},
		{"reduce", n, n, func(send, recv *Tensor[T]) error { return Reduce(c, send, recv, Sum, 0) }},
		{"allreduce", n, n, func(send, recv *Tensor[T]) error { return Allreduce(c, send, recv, Sum) }},
		{"average", n, n, func(send, recv *Tensor[T]) error { return Allreduce(c, send, recv, Average) }},
		{"allgather", n, 2 * n, func(send, recv *Tensor[T]) error { return Allgather(c, send, recv) }},
		{"reducescatter", 2 * n, n, func(send, recv *Tensor[T]) error { return ReduceScatter(c, send, recv, Sum) }},
		{"alltoall", 2 * n, 2 * n, func(send, recv *Tensor[T]) error { return Alltoall(c, send, recv) }},
		{"sendrecv", n, n, func(send, recv *Tensor[T]) error {
			_, err := Sendrecv(c, send, 1-c.Rank(), 3, recv, 1-c.Rank(), 3)
			return err
		}},
	} {
		var results [2][]T
		for k, place := range []*Device{CPU, d} {
			data := make([]T, op.send)
			for i := range data {
				data[i] = value(i)
			}
			result := make([]T, op.recv)
			for i := range result {
				result[i] = value(i + 1) // sent by a broadcast, and changed on root only
			}
			err := on(place, data, func(send *Tensor[T]) error {
				return on(place, result, func(recv *Tensor[T]) error { return op.do(send, recv) })
			})
			if err != nil {
				return fmt.Errorf("%s of %s on %v: %w", op.name, typeName[T](), place, err)
			}
			results[k] = result
		}
		if a, b := view.Bytes(results[0]), view.Bytes(results[1]); !slices.Equal(a, b) {
			return fmt.Errorf("rank %d: %s of %s has other bits on %v than on the processor", c.Rank(), op.name, typeName[T](), d)
		}
	}
	return nil
}

// on calls f with a tensor of data on a device, and copies the tensor back to data.
func on[T cohort.Number](d *Device, data []T, f func(t *Tensor[T]) error) error {
	host, err := Of(data, len(data))
	if err != nil {
		return err
	}
	t, err := NewOn[T](d, len(data))
	if err != nil {
		return err
	}
	if err = Copy(t, host); err == nil {
		err = f(t)
	}
	return errors.Join(err, Copy(host, t), t.Close())
}

// BenchmarkGPUStaged measures Allreduce and Bcast of two ranks on one GPU. In the same run it
// measures their parts: the copies of all ranks from and to the device with pinned memory, and the
// same operation on the host. %bound compares the operation with its slowest part; naive is all
// parts in sequence without pinned memory.
func BenchmarkGPUStaged(b *testing.B) {
	d := gpus(b)[0]
	for _, n := range []int{64 << 20, 256 << 20, 1 << 30} {
		staged(b, d, n)
	}
}

// TestStagedBenchmarkMeasures runs the benchmark's measurement on a device in software.
func TestStagedBenchmarkMeasures(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{})
	for _, op := range []string{"allreduce", "bcast"} {
		m := must.Get(measureStaged(devs[0], op, 1<<20, 1))
		for what, took := range m {
			if took <= 0 {
				t.Errorf("%s: %s took %v", op, what, took)
			}
		}
		if len(m) != 5 {
			t.Errorf("%s: measured %v", op, m)
		}
	}
}

func staged(b *testing.B, d *Device, bytes int) {
	for _, op := range []string{"allreduce", "bcast"} {
		b.Run(fmt.Sprintf("%s/%d", op, bytes), func(b *testing.B) {
			b.SetBytes(int64(bytes))
			best := map[string]time.Duration{}
			for b.Loop() {
				m, err := measureStaged(d, op, bytes, 3)
				if err != nil {
					b.Fatal(err)
				}
				for what, took := range m {
					if old := best[what]; old == 0 || took < old {
						best[what] = took
					}
				}
			}
			slowest := max(best["down"], best["host"], best["up"])
			b.ReportMetric(100*slowest.Seconds()/best["staged"].Seconds(), "%bound")
			for what, took := range best {
				b.ReportMetric(float64(bytes)/1e9/took.Seconds(), what+"-GB/s")
			}
		})
	}
}

// measureStaged returns the best times of the slower of two ranks for an operation and its parts.
func measureStaged(d *Device, op string, bytes, times int) (map[string]time.Duration, error) {
	best := map[string]time.Duration{}
	err := cohort.Run(context.Background(), 2, func(w *cohort.Comm) (err error) {
		c, err := NewComm(w, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		n := bytes / 4
		host := make([]float32, n)
		pageable, err := Of(host, n)
		if err != nil {
			return err
		}
		far, err := NewOn[float32](d, n)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, far.Close()) }()
		stream, err := d.NewStream()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stream.Close()) }()
		pinned, err := d.acc.Pin(min(bytes, 64<<20))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.acc.Unpin(pinned)) }()
		if err := Copy(far, pageable); err != nil {
			return err
		}
		collective := func(t *Tensor[float32]) error {
			if op == "bcast" {
				return Bcast(c, t, 0)
			}
			return Allreduce(c, t, t, Sum)
		}
		s := stream.s
		down, up := w.Rank() == 0 || op != "bcast", w.Rank() == 1 || op != "bcast"
		for _, part := range []struct {
			name string
			do   func() error
		}{
			{"down", func() error {
				var err error
				for at := 0; at < bytes && err == nil && down; at += len(pinned) {
					err = s.ToHost(pinned[:min(len(pinned), bytes-at)], far.at)
				}
				return errors.Join(err, s.Sync())
			}},
			{"up", func() error {
				var err error
				for at := 0; at < bytes && err == nil && up; at += len(pinned) {
					err = s.ToDevice(far.at, pinned[:min(len(pinned), bytes-at)])
				}
				return errors.Join(err, s.Sync())
			}},
			{"host", func() error { return collective(pageable) }},
			{"staged", func() error { return collective(far) }},
			{"naive", func() error {
				var err error
				if down {
					err = errors.Join(s.ToHost(view.Bytes(host), far.at), s.Sync())
				}
				if err == nil {
					err = collective(pageable)
				}
				if err == nil && up {
					err = errors.Join(s.ToDevice(far.at, view.Bytes(host)), s.Sync())
				}
				return err
			}},
		} {
			for range times {
				if err := w.Barrier(); err != nil {
					return err
				}
				start := time.Now()
				if err := part.do(); err != nil {
					return fmt.Errorf("%s: %w", part.name, err)
				}
				took, err := cohort.AllreduceOne(w, int64(time.Since(start)), cohort.Max)
				if err != nil {
					return err
				}
				if w.Rank() != 0 { // the ranks are goroutines, and share the map
					continue
				}
				if old := best[part.name]; old == 0 || time.Duration(took) < old {
					best[part.name] = time.Duration(took)
				}
			}
		}
		return nil
	})
	return best, err
}

// gpus returns this machine's devices. Without one the test is skipped; devices in software show
// the same.
func gpus(t testing.TB) []*Device {
	t.Helper()
	if _, err := CUDACount(); err != nil {
		t.Skipf("no device: %v", err)
	}
	all, err := everyDevice()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range all {
			d.Trim()
		}
	})
	return all
}

func everyDevice() ([]*Device, error) {
	n, err := CUDACount()
	if err != nil {
		return nil, err
	}
	all := make([]*Device, n)
	for i := range all {
		if all[i], err = CUDA(i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Copies between all places of a machine with GPUs.
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

// An allocation that fails is an error, and memory allocated before it is freed.
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
		t.Errorf("an unallocated address: %v, %v", x, err)
	}
	// Without freeing, the rounds would take twice the free memory. The free memory afterwards
	// shows nothing, because others may use the device.
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

// BenchmarkGPUTensorCopy compares Copy with the driver's copies of pageable memory, which should be
// slower, and of pinned memory, which are the device's limit.
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
