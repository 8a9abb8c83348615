package tensor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Pending operations of all kinds and lengths, some on devices, are waited for in any order.
func TestManyPendingCollectives(t *testing.T) {
	const flying = 100
	for _, lazy := range []bool{false, true} {
		onRanks(t, []int{2, 4}, func(t *testing.T, world *cohort.Comm) error {
			l := must.Get(newLab(world, small, soft.Config{Lazy: lazy, Seed: uint64(world.Rank())}))
			return l.close(stormOf(l, flying))
		})
	}
}

func stormOf(l *lab, flying int) error {
	v := reals[float64]()
	plan := rand.New(rand.NewPCG(1, uint64(flying))) // the same on all ranks
	own := rand.New(rand.NewPCG(2, uint64(l.rank)))
	handles, checks := make([]*Handle, flying), make([]func() error, flying)
	for i := range handles {
		n, kind := 1+plan.IntN(700), plan.IntN(7)
		in, out := placements[own.IntN(3)].where(l)
		lo, all := i, l.size*n
		put := func(d *Device, data []float64) held[float64] {
			h, err := hold(d, data, v.of(57), len(data))
			if err != nil {
				panic(err)
			}
			return h
		}
		var a, b held[float64]
		var want []float64
		var err error
		switch kind {
		case 0:
			a, b = put(in, v.vector(l.rank, lo, lo+n)), put(out, make([]float64, n))
			handles[i], err = Iallreduce(l.c, a.t, b.t, Sum)
			want = v.reduced(v.ops()[0], l.size, lo, lo+n)
		case 1:
			a, b = put(in, v.vector(l.rank, lo, lo+n)), put(out, make([]float64, all))
			handles[i], err = Iallgather(l.c, a.t, b.t)
			for r := range l.size {
				want = append(want, v.vector(r, lo, lo+n)...)
			}
		case 2:
			a, b = put(in, v.vector(l.rank, lo, lo+all)), put(out, make([]float64, n))
			handles[i], err = IreduceScatter(l.c, a.t, b.t, Max)
			want = v.reduced(reducing{Max, func(a, b int) int { return max(a, b) }}, l.size, lo+l.rank*n, lo+(l.rank+1)*n)
		case 3:
			b = put(in, v.vector(l.rank, lo, lo+n))
			handles[i], err = Ibcast(l.c, b.t, i%l.size)
			want = v.vector(i%l.size, lo, lo+n)
		case 4:
			a, b = put(in, v.vector(l.rank, lo, lo+n)), put(out, make([]float64, n))
			handles[i], err = Ireduce(l.c, a.t, b.t, Sum, i%l.size)
			if want = make([]float64, n); l.rank == i%l.size {
				want = v.reduced(v.ops()[0], l.size, lo, lo+n)
			}
		case 5:
			a, b = put(in, v.vector(l.rank, lo, lo+all)), put(out, make([]float64, all))
			handles[i], err = Ialltoall(l.c, a.t, b.t)
			for r := range l.size {
				want = append(want, v.vector(r, lo+l.rank*n, lo+(l.rank+1)*n)...)
			}
		case 6:
			b = put(in, v.vector(l.rank, lo, lo+n))
			handles[i], err = l.c.Ibarrier()
			want = v.vector(l.rank, lo, lo+n) // nothing moves
		}
		if err != nil {
			return err
		}
		checks[i] = func() error {
			got, err := b.drop(v.of(57))
			if a.t != nil {
				_, err2 := a.drop(v.of(57))
				err = errors.Join(err, err2)
			}
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("operation %d, of kind %d and %d elements: %v, want %v", i, kind, n, got, want)
			}
			return err
		}
	}
	var errs []error
	if l.rank%2 == 0 {
		for _, i := range own.Perm(flying) {
			errs = append(errs, WaitAll(handles[i]), checks[i]())
		}
	} else {
		for range handles {
			i, _, err := WaitAny(handles...)
			if i < 0 {
				return errors.New("WaitAny finds nothing left to wait for")
			}
			<-handles[i].Done()
			handles[i] = nil
			errs = append(errs, err, checks[i]())
		}
		if i, _, err := WaitAny(handles...); i != -1 || err != nil {
			errs = append(errs, fmt.Errorf("WaitAny of nothing: %d, %v", i, err))
		}
	}
	return errors.Join(append(errs, WaitAll(handles...))...)
}

// If any call of a device's driver fails, the operation ends on all ranks, that rank returns the
// error, and all memory, streams and events are freed.
func TestCollectivesEndOnDriverErrors(t *testing.T) {
	device := errors.New("the device failed on purpose")
	spare := map[soft.Op]bool{soft.Free: true, soft.Unpin: true, soft.CloseStream: true, soft.CloseEvent: true, soft.Run: true}
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		for name, do := range []func(c *Comm, a, b, all *Tensor[float32]) error{
			func(c *Comm, a, b, all *Tensor[float32]) error { return Allreduce(c, a, b, Sum) },
			func(c *Comm, a, b, all *Tensor[float32]) error { return Allgather(c, a, all) },
			func(c *Comm, a, b, all *Tensor[float32]) error { return Bcast(c, a, 0) },
			func(c *Comm, a, b, all *Tensor[float32]) error {
				h, err := IreduceScatter(c, all, b, Average)
				if err != nil {
					return err
				}
				return WaitAll(h)
			},
		} {
			failures := 0
			for k := 1; ; k++ {
				l := must.Get(newLab(world, small, soft.Config{}))
				host := zeros[float32](1100)
				a, err := host.To(l.devs[0])
				b, err2 := host.To(l.devs[0])
				all, err3 := zeros[float32](2200).To(l.devs[0])
				if err = errors.Join(err, err2, err3); err != nil {
					return err
				}
				l.devs[0].Trim()
				calls, failed, pinning := 0, 0, false
				if l.rank == 0 {
					l.drv.SetFail(func(c soft.Call) error {
						if spare[c.Op] {
							return nil
						}
						calls++
						if again := pinning && c.Op == soft.Pin; again || calls == k {
							failed, pinning = 1, c.Op == soft.Pin // pinning is attempted twice
							return device
						}
						return nil
					})
				}
				err = do(l.c, a, b, all)
				l.drv.SetFail(nil)
				most, err2 := cohort.AllreduceOne(world, failed, cohort.Max)
				switch {
				case err2 != nil:
					return err2
				case most == 0 && err != nil:
					return fmt.Errorf("operation %d, nothing failed: %w", name, err)
				case failed == 1 && !errors.Is(err, device):
					return fmt.Errorf("operation %d, call %d failed: %w", name, k, err)
				case l.rank == 1 && err != nil && !errors.Is(err, cohort.ErrBroken):
					return fmt.Errorf("operation %d, rank 0's call %d failed, rank 1's: %w", name, k, err)
				}
				failures += most
				if err := l.close(errors.Join(a.Close(), b.Close(), all.Close())); err != nil {
					return fmt.Errorf("operation %d, call %d failed: %w", name, k, err)
				}
				if most == 0 {
					break
				}
			}
			if failures < 20 {
				return fmt.Errorf("operation %d: only %d calls of the driver failed", name, failures)
			}
		}
		return nil
	})
}

// A device that breaks during an operation ends it on all ranks.
func TestBrokenDeviceEndsCollective(t *testing.T) {
	for _, k := range []int{1, 4, 5, 6, 10} {
		onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
			l := must.Get(newLab(world, small, soft.Config{}))
			a, err := zeros[float32](1100).To(l.devs[0])
			if err != nil {
				return err
			}
			if l.rank == 1 {
				l.drv.SetFail(soft.Nth(soft.Run, k, nil))
			}
			err = Allreduce(l.c, a, a, Sum)
			switch {
			case l.rank == 1:
				err = errors.Join(is(err, cohort.ErrInternal, "soft", "tensor: allreduce: float32[1100] on soft:0: "))
				_ = a.Close() // the device is broken
			case err != nil: // unless all of it was through
				err = is(err, cohort.ErrBroken, "rank 1")
				fallthrough
			default:
				err = errors.Join(err, a.Close())
			}
			return l.close(err)
		})
	}
}

// An operation reads what earlier work in the tensors' streams wrote, and later work sees its
// results. Its own copies do not wait for other streams.
func TestCollectivesFollowStreamOrder(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		collectivesFollowStreamOrder(t, lazy)
	}
}

func collectivesFollowStreamOrder(t *testing.T, lazy bool) {
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		l := must.Get(newLab(world, small, soft.Config{Lazy: lazy, Seed: 1}))
		const n = 1000
		dev := l.devs[0]
		a, err := NewOn[float32](dev, n)
		b, err2 := NewOn[float32](dev, n)
		one, err3 := dev.acc.Stream()
		two, err4 := dev.acc.Stream()
		third, err5 := dev.acc.Stream()
		must.OK(errors.Join(err, err2, err3, err4, err5))
		in, err := a.On(&Stream{dev, one})
		out, err2 := b.On(&Stream{dev, two})
		must.OK(errors.Join(err, err2))
		end, entered, seen := make(chan struct{}), make(chan struct{}), float32(0)
		if !lazy { // which would let third block the others
			err = third.(*soft.Stream).Do(func(mem func(accel.Address, int) []byte) { close(entered); <-end })
			<-entered
		}
		write := func(s accel.Stream, at accel.Address, x float32, last *float32) error {
			return s.(*soft.Stream).Do(func(mem func(accel.Address, int) []byte) {
				f := view.Of[float32](mem(at, 4*n))
				if last != nil {
					*last = f[n-1]
				}
				for i := range f {
					f[i] = x
				}
			})
		}
		for step := range 20 {
			x := float32(step + 1)
			err = errors.Join(err, write(one, in.at, x, nil), write(two, out.at, -1, nil))
			h, err2 := Iallreduce(l.c, in, out, Sum)
			if err = errors.Join(err, err2); err != nil {
				return err
			}
			err = errors.Join(err, WaitAll(h), write(two, out.at, 0, &seen), two.Sync())
			if seen != 2*x {
				err = errors.Join(err, fmt.Errorf("step %d: work after the operation finds %v, want %v", step, seen, 2*x))
			}
		}
		close(end)
		return l.close(errors.Join(err, one.Close(), two.Close(), third.Close(), a.Close(), b.Close()))
	})
}

// All copies use pinned memory, every byte is copied once in each direction, and no more pieces are
// pinned than needed.
func TestCollectivesCopyThroughPinnedMemory(t *testing.T) {
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		l := must.Get(newLab(world, Config{Chunk: 128 << 10}, soft.Config{}))
		const n = 1 << 20
		a, err := zeros[float32](n).To(l.devs[0])
		if err != nil {
			return err
		}
		l.devs[0].Trim()
		was := l.drv.Stats()
		for range 3 {
			err = errors.Join(err, Allreduce(l.c, a, a, Sum))
		}
		now := l.drv.Stats()
		if down, up := now.ToHost.Pinned.Bytes-was.ToHost.Pinned.Bytes, now.ToDevice.Pinned.Bytes-was.ToDevice.Pinned.Bytes; down != 3*4*n || up != 3*4*n {
			err = errors.Join(err, fmt.Errorf("%d bytes to the host and %d to the device, want %d", down, up, 3*4*n))
		}
		if now.ToHost.Pageable != was.ToHost.Pageable || now.ToDevice.Pageable != was.ToDevice.Pageable {
			err = errors.Join(err, errors.New("a copy was of memory that is not pinned"))
		}
		if now.Pins != slotsMost || now.Pinned != slotsMost*(128<<10) {
			err = errors.Join(err, fmt.Errorf("%d pieces of %d bytes are pinned, want %d of %d", now.Pins, now.Pinned, slotsMost, 128<<10))
		}
		return l.close(errors.Join(err, a.Close()))
	})
}

// A blocking operation on the processor does not allocate.
func TestCollectivesDoNotAllocate(t *testing.T) {
	const runs = 50
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		c, err := NewComm(world, nil)
		if err != nil {
			return err
		}
		x, y, h := zeros[float32](100), zeros[float32](200), zeros[cohort.BFloat16](100)
		all := []func() error{
			func() error { return Allreduce(c, x, x, Average) },
			func() error { return Bcast(c, x, 1) },
			func() error { return Allgather(c, x, y) },
			func() error { return ReduceScatter(c, y, x, Max) },
			func() error { return Alltoall(c, y, y) },
			func() error { return Allreduce(c, h, h, Sum) },
			c.Barrier,
		}
		for i, do := range all {
			one := func() { err = errors.Join(err, do()) }
			if c.Rank() != 0 {
				for range runs + 1 { // AllocsPerRun calls it once more
					one()
				}
				continue
			}
			if n := testing.AllocsPerRun(runs, one); n > 0 && !racing {
				err = errors.Join(err, fmt.Errorf("operation %d: %v allocations", i, n))
			}
		}
		return errors.Join(err, c.Close())
	})
}

func BenchmarkAllreduce(b *testing.B) {
	for _, place := range []string{"slice", "cpu", "device"} {
		for _, bytes := range []int{8, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%s/%d", place, bytes), func(b *testing.B) {
				b.SetBytes(int64(bytes))
				b.ReportAllocs()
				err := cohort.Run(b.Context(), 2, func(world *cohort.Comm) error {
					l, err := newLab(world, Config{}, soft.Config{})
					if err != nil {
						return err
					}
					x := zeros[float32](bytes / 4)
					if place == "device" {
						if x, err = x.To(l.devs[0]); err != nil {
							return err
						}
					}
					if err := world.Barrier(); err != nil {
						return err
					}
					if l.rank == 0 {
						b.ResetTimer()
					}
					for range b.N {
						if place == "slice" {
							err = cohort.Allreduce(world, x.Data(), x.Data(), cohort.Sum)
						} else {
							err = Allreduce(l.c, x, x, Sum)
						}
						if err != nil {
							return err
						}
					}
					return l.close(x.Close())
				})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
