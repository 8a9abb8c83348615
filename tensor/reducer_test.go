package tensor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// lengths are those of gradients: some share a bucket of 2048 bytes, two are longer.
var lengths = []int{3, 100, 0, 256, 1000, 1, 511, 512, 513, 7, 7, 7, 2000}

func TestReducerAveragesEveryStep(t *testing.T) {
	onRanks(t, []int{1, 2, 3}, func(t *testing.T, world *cohort.Comm) error {
		for _, p := range placements[:3] {
			l, err := newLab(world, small, soft.Config{Lazy: true, Seed: uint64(world.Rank())})
			if err == nil {
				err = l.close(reduceSteps(l, p))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	})
}

// reduceSteps runs steps in which tensors become ready in a different order on each rank; on
// devices, work in their streams writes them.
func reduceSteps(l *lab, p placement) error {
	dev, _ := p.where(l)
	var tensors []*Tensor[float32]
	var streams []accel.Stream
	for _, n := range lengths {
		t, err := NewOn[float32](dev, n)
		if err == nil && dev != nil {
			var s accel.Stream
			if s, err = dev.acc.Stream(); err == nil {
				streams = append(streams, s)
				t, err = t.On(&Stream{dev, s})
			}
		}
		if err != nil {
			return err
		}
		tensors = append(tensors, t)
	}
	r, err := NewReducer(l.c, tensors, Average, 2048)
	if err != nil {
		return err
	}
	v := reals[float32]()
	random := rand.New(rand.NewPCG(5, uint64(l.rank)))
	for step := range 4 {
		for _, i := range random.Perm(len(tensors)) {
			t, data := tensors[i], v.vector(l.rank, step+i, step+i+lengths[i])
			if dev == nil {
				copy(t.Data(), data)
			} else if t.n > 0 {
				err = t.stream.(*soft.Stream).Do(func(mem func(accel.Address, int) []byte) { copy(view.Of[float32](mem(t.at, 4*t.n)), data) })
			}
			if err := errors.Join(err, r.Ready(i)); err != nil {
				return err
			}
		}
		if err := r.Wait(); err != nil {
			return err
		}
		for i, t := range tensors {
			host, err := t.To(CPU)
			if err != nil {
				return err
			}
			if got, want := host.Data(), v.reduced(v.ops()[2], l.size, step+i, step+i+lengths[i]); !slices.Equal(got, want) {
				return fmt.Errorf("step %d: tensor %d is %v, want %v", step, i, got, want)
			}
		}
	}
	if dev != nil {
		// Tensors that share a bucket are copied to it and back in each step; longer tensors and
		// those that fill a bucket are not.
		alone := map[int]bool{4: true, 12: true, 7: true, 8: true}
		for i := 0; i < len(lengths); i++ {
			if b := r.buckets[r.member[i].bucket]; (b.last-b.first == 1) != alone[i] {
				err = errors.Join(err, fmt.Errorf("tensor %d of %d elements shares a bucket: %v", i, lengths[i], b.last-b.first > 1))
			}
		}
		copies := 0
		for i, n := range lengths {
			if n > 0 && !alone[i] {
				copies++
			}
		}
		if got := l.drv.Stats().Within.Copies; got != 2*4*copies {
			err = errors.Join(err, fmt.Errorf("%d copies within the device, want %d", got, 2*4*copies))
		}
	}
	err = errors.Join(err, r.Close(), AllreduceAll(l.c, tensors, Max))
	for _, t := range tensors {
		err = errors.Join(err, t.Close())
	}
	for _, s := range streams {
		err = errors.Join(err, s.Close())
	}
	return err
}

func TestReducerRejectsWrongArguments(t *testing.T) {
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		l := must.Get(newLab(world, small, soft.Config{}))
		a, b := zeros[float32](5), zeros[float32](6)
		other, err := b.To(l.devs[0])
		if err != nil {
			return err
		}
		make := func(op Op, bytes int, tensors ...*Tensor[float32]) error {
			_, err := NewReducer(l.c, tensors, op, bytes)
			return err
		}
		last := l.rank == 1
		err = errors.Join(
			is(make(Sum, 0, a, nil), cohort.ErrBuffer, "tensor: newreducer: ", "tensor 1", "nil"),
			is(make(Sum, -1, a), cohort.ErrCount, "-1 bytes"),
			is(make(Sum, 0, a, other), cohort.ErrBuffer, "one device", "soft:0"),
			is(make(Sum, 0, a, []*Tensor[float32]{a, b}[pick(last, 0, 1)]), cohort.ErrMismatch, "rank 1"),
			is(make(Sum, pick(last, 1000, 2000), a), cohort.ErrMismatch, "rank 1"),
			is(make([]Op{Sum, Average}[pick(last, 0, 1)], 0, a), cohort.ErrMismatch, "rank 1"),
			make(Sum, 0),
		)
		if last {
			err = errors.Join(err, is(make(Sum, 0, nil), cohort.ErrBuffer))
		} else {
			err = errors.Join(err, is(make(Sum, 0, a), cohort.ErrBuffer, "rank 1: "))
		}
		r, err2 := NewReducer(l.c, []*Tensor[float32]{a, b}, Sum, 0)
		must.OK(errors.Join(err, err2))
		err = errors.Join(is(r.Ready(2), cohort.ErrCount), is(r.Ready(-1), cohort.ErrCount), r.Ready(0), is(r.Ready(0), cohort.ErrRequest, "tensor 0"),
			is(r.Wait(), cohort.ErrRequest, "tensor 1"), r.Ready(1), r.Wait(), r.Close(), other.Close())
		return l.close(err)
	})
}

// If any call of a device's driver fails, the step ends on all ranks.
func TestReducerEndsOnDriverErrors(t *testing.T) {
	device := errors.New("the device failed on purpose")
	spare := map[soft.Op]bool{soft.Free: true, soft.Unpin: true, soft.CloseStream: true, soft.CloseEvent: true, soft.Run: true, soft.Pin: true}
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		for k, most := 1, 1; most > 0; k++ {
			l, err := newLab(world, small, soft.Config{})
			if err != nil {
				return err
			}
			var tensors []*Tensor[float32]
			for _, n := range lengths {
				t := must.Get(zeros[float32](n).To(l.devs[0]))
				tensors = append(tensors, t)
			}
			calls, failed := 0, 0
			if l.rank == 0 {
				l.drv.SetFail(func(c soft.Call) error {
					if spare[c.Op] {
						return nil
					}
					if calls++; calls == k {
						failed = 1
						return device
					}
					return nil
				})
			}
			err = AllreduceAll(l.c, tensors, Sum)
			l.drv.SetFail(nil)
			if failed == 1 && !errors.Is(err, device) || failed == 0 && l.rank == 0 && err != nil {
				return fmt.Errorf("call %d failed: %w", k, err)
			}
			if l.rank == 1 && err != nil && !errors.Is(err, cohort.ErrBroken) && !strings.Contains(err.Error(), "rank 0: ") {
				return fmt.Errorf("rank 0's call %d failed, rank 1's: %w", k, err)
			}
			err = nil
			for _, t := range tensors {
				err = errors.Join(err, t.Close())
			}
			if most, err2 := cohort.AllreduceOne(world, failed, cohort.Max); most == 0 || err2 != nil {
				return l.close(errors.Join(err, err2))
			}
			if err = l.close(err); err != nil {
				return fmt.Errorf("call %d failed: %w", k, err)
			}
		}
		return nil
	})
}

func BenchmarkReducer(b *testing.B) {
	err := cohort.Run(b.Context(), 2, func(world *cohort.Comm) error {
		c, err := NewComm(world, nil)
		if err != nil {
			return err
		}
		var tensors []*Tensor[float32]
		for range 100 {
			tensors = append(tensors, zeros[float32](1000))
		}
		for _, together := range []bool{true, false} {
			bytes := 1
			if together {
				bytes = 0
			}
			r, err := NewReducer(c, tensors, Average, bytes)
			if err != nil {
				return err
			}
			step := func() {
				for i := range tensors {
					_ = r.Ready(i)
				}
				if err := r.Wait(); err != nil {
					panic(err)
				}
			}
			const steps = 200
			begun := time.Now()
			n := 0.0
			if world.Rank() == 0 {
				n = testing.AllocsPerRun(steps-1, step)
				b.ReportMetric(float64(time.Since(begun).Microseconds())/steps, fmt.Sprintf("us/step-together=%v", together))
				b.ReportMetric(n, fmt.Sprintf("allocs-together=%v", together))
			} else {
				for range steps {
					step()
				}
			}
		}
		return c.Close()
	})
	if err != nil {
		b.Fatal(err)
	}
}
