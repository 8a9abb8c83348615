package tensor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// What is here is run on GPUs by scripts/gpu-test. That it works at all is tried on a device in software.

// TestGPUSameBits compares results on GPUs with those on the processor.
func TestGPUSameBits(t *testing.T) { sameBits(t, gpus(t), 3<<20+17) }

func TestSameBits(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{Devices: 2, Delay: soft.Random(5, 20*time.Microsecond)})
	sameBits(t, devs, 3001)
}

// sameBits does every collective of two ranks, and messages, on the processor and on devices: rank r has
// device r, or they share one.
func sameBits(t *testing.T, devs []*Device, n int) {
	cfg := &Config{}
	if n < 1<<20 {
		cfg.Chunk = 2048
	}
	err := cohort.Run(context.Background(), 2, func(w *cohort.Comm) error {
		c, err := NewComm(w, cfg)
		if err != nil {
			return err
		}
		d := devs[w.Rank()%len(devs)]
		return errors.Join(
			sameBitsOf[float32](c, d, n, func(i int) float32 { return float32(i%1009)/7 + float32(w.Rank()) }),
			sameBitsOf[cohort.Float16](c, d, n, func(i int) cohort.Float16 { return cohort.ToFloat16(float32(i%1009)/512 + float32(w.Rank())) }),
			sameBitsOf[int64](c, d, n, func(i int) int64 { return int64(i)*1_000_003 - int64(w.Rank()) }),
			c.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

func sameBitsOf[T cohort.Number](c *Comm, d *Device, n int, value func(i int) T) error {
	for _, op := range []struct {
		name       string
		send, recv int // lengths
		do         func(send, recv *Tensor[T]) error
	}{
		{"bcast", n, n, func(_, recv *Tensor[T]) error { return Bcast(c, recv, 1) }},
		{"reduce", n, n, func(send, recv *Tensor[T]) error { return Reduce(c, send, recv, Sum, 0) }},
		{"allreduce", n, n, func(send, recv *Tensor[T]) error { return Allreduce(c, send, recv, Average) }},
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
				result[i] = value(i + 1) // what a broadcast sends, and what root alone changes
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

// on calls f with a tensor of data on a device, and leaves in data what is there then.
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

// BenchmarkGPUStaged measures Allreduce and Bcast of two ranks on one GPU, and, in the same run, what they are
// made of: all ranks' copies from the device and to it, with pinned memory, and the same operation on the host.
// %bound is how much of the slowest of these is reached, and naive is all of it one after the other
// without pinned memory.
func BenchmarkGPUStaged(b *testing.B) {
	d := gpus(b)[0]
	for _, n := range []int{64 << 20, 256 << 20, 1 << 30} {
		staged(b, d, n)
	}
}

// TestStagedMeasures tries the benchmark.
func TestStagedMeasures(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{})
	for _, op := range []string{"allreduce", "bcast"} {
		m, err := measureStaged(devs[0], op, 1<<20, 1)
		if err != nil {
			t.Fatal(err)
		}
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

// measureStaged returns the best of some times that the slower of two ranks takes for an operation, and for what it is made of.
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
