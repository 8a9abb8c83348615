package tensor

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// lab is a rank with its own devices.
type lab struct {
	world      *cohort.Comm
	c          *Comm
	rank, size int
	drv        *soft.Driver
	devs       []*Device
	tests      int
}

func newLab(world *cohort.Comm, cfg Config, devices soft.Config) (*lab, error) {
	l := &lab{world: world, rank: world.Rank(), size: world.Size()}
	devices.Devices = 2
	l.drv = soft.New(devices)
	for i := range devices.Devices {
		acc, err := l.drv.Device(i)
		if err != nil {
			return nil, err
		}
		l.devs = append(l.devs, newDevice("soft", acc))
	}
	var err error
	l.c, err = NewComm(world, &cfg)
	return l, err
}

// close ends a lab and returns an error for anything left behind.
func (l *lab) close(err error) error {
	if err == nil {
		err = l.world.Barrier()
	}
	err = errors.Join(err, l.c.Close())
	for _, d := range l.devs {
		d.Trim()
	}
	return errors.Join(err, l.drv.Left(), l.drv.Close())
}

// placement says where the ranks' tensors are; nil is the processor.
type placement struct {
	name  string
	where func(l *lab) (send, recv *Device)
}

var placements = []placement{
	{"cpu", func(*lab) (_, _ *Device) { return nil, nil }},
	{"device", func(l *lab) (_, _ *Device) { return l.devs[0], l.devs[0] }},
	{"mixed", func(l *lab) (_, _ *Device) {
		if l.rank%2 == 0 {
			return nil, nil
		}
		return l.devs[0], l.devs[0]
	}},
	{"split", func(l *lab) (_, _ *Device) {
		switch l.rank % 4 {
		case 0:
			return nil, l.devs[0]
		case 1:
			return l.devs[0], nil
		case 2:
			return l.devs[0], l.devs[1]
		}
		return nil, nil
	}},
}

// held is a tensor in the middle of another one, whose first and last elements must not change.
type held[T cohort.Number] struct{ whole, t *Tensor[T] }

const guards = 3

func hold[T cohort.Number](d *Device, data []T, canary T, shape ...int) (h held[T], err error) {
	all := slices.Repeat([]T{canary}, len(data)+2*guards)
	copy(all[guards:], data)
	host, err := Of(all, len(all))
	if err == nil {
		h.whole, err = host.To(d)
	}
	if err == nil {
		h.t, err = h.whole.Sub(0, guards, guards+len(data))
	}
	if err == nil {
		h.t, err = h.t.Reshape(shape...)
	}
	return h, err
}

// drop returns the elements of a tensor and frees it.
func (h held[T]) drop(canary T) ([]T, error) {
	host, err := h.whole.To(CPU)
	if err = errors.Join(err, h.whole.Close()); err != nil {
		return nil, err
	}
	all := host.Data()
	for i, x := range all {
		if (i < guards || i >= len(all)-guards) && x != canary {
			return nil, fmt.Errorf("an element beside the tensor was changed: %v at %d of %d", x, i-guards, len(all)-2*guards)
		}
	}
	return all[guards : len(all)-guards], nil
}

// numbers is a type, and a function that makes its elements from integers.
type numbers[T cohort.Number] struct {
	of      func(int) T
	average func(sum, n int) T
	least   int // of the values
	ordered bool
	bits    bool
}

// reducing is an operation and its effect on integers.
type reducing struct {
	op   Op
	fold func(a, b int) int
}

func (v numbers[T]) ops() []reducing {
	all := []reducing{
		{Sum, func(a, b int) int { return a + b }},
		{Prod, func(a, b int) int { return a * b }},
		{Average, func(a, b int) int { return a + b }},
	}
	if v.ordered {
		all = append(all, reducing{Min, func(a, b int) int { return min(a, b) }}, reducing{Max, func(a, b int) int { return max(a, b) }})
	}
	if v.bits {
		all = append(all, reducing{OpOf(cohort.Bxor), func(a, b int) int { return a ^ b }})
	}
	return all
}

// value is element i of what rank r sends.
func (v numbers[T]) value(r, i int) int { return (r*7+i*3+i/5)%5 + v.least }

// vector returns elements lo to hi of what rank r sends.
func (v numbers[T]) vector(r, lo, hi int) []T {
	x := make([]T, hi-lo)
	for i := range x {
		x[i] = v.of(v.value(r, lo+i))
	}
	return x
}

// reduced returns elements lo to hi of the result.
func (v numbers[T]) reduced(op reducing, size, lo, hi int) []T {
	x := make([]T, hi-lo)
	for i := range x {
		a := v.value(0, lo+i)
		for r := 1; r < size; r++ {
			a = op.fold(a, v.value(r, lo+i))
		}
		if x[i] = v.of(a); op.op == Average {
			x[i] = v.average(a, size)
		}
	}
	return x
}

// try does one operation, blocking or not, and compares recv with want; a nil want means that recv
// does not change. A nil recvShape means in place.
func try[T cohort.Number](l *lab, p placement, what string, v numbers[T], send []T, sendShape []int, recvShape []int, want []T,
	do func(send, recv *Tensor[T]) error, start func(send, recv *Tensor[T]) (*Handle, error)) error {
	canary := v.of(57)
	in, out := p.where(l)
	wrap := func(err error) error {
		return fmt.Errorf("%s of %s%v, %d ranks, %s, in place %v: %w", what, typeName[T](), sendShape, l.size, p.name, recvShape == nil, err)
	}
	a, err := hold(in, send, canary, sendShape...)
	if err != nil {
		return wrap(err)
	}
	b := a
	if recvShape != nil {
		if b, err = hold(out, slices.Repeat([]T{canary}, product(recvShape)), canary, recvShape...); err != nil {
			return wrap(err)
		}
	}
	if l.tests++; l.tests%2 == 0 {
		err = do(a.t, b.t)
	} else {
		var h *Handle
		if h, err = start(a.t, b.t); err == nil {
			err = WaitAll(h)
		}
	}
	if err != nil {
		return wrap(err)
	}
	got, err := b.drop(canary)
	if err != nil {
		return wrap(err)
	}
	if want == nil {
		want = slices.Repeat([]T{canary}, len(got))
	}
	if recvShape == nil {
		got = got[:len(want)]
	}
	for i, x := range got {
		if x != want[i] {
			return wrap(fmt.Errorf("element %d of %d is %v, want %v", i, len(got), x, want[i]))
		}
	}
	if recvShape == nil {
		return nil
	}
	kept, err := a.drop(canary)
	if err != nil {
		return wrap(err)
	}
	if !slices.Equal(kept, send) {
		return wrap(errors.New("what was sent has changed"))
	}
	return nil
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// tryAll does all operations with blocks of n elements.
func tryAll[T cohort.Number](l *lab, p placement, v numbers[T], n int) error {
	c, size, root := l.c, l.size, n%l.size
	mine := v.vector(l.rank, 0, n)
	var gathered, mixed []T
	for r := range size {
		gathered = append(gathered, v.vector(r, 0, n)...)
		mixed = append(mixed, v.vector(r, l.rank*n, (l.rank+1)*n)...)
	}
	all := v.vector(l.rank, 0, size*n)
	first := slices.Clone(all) // for Allgather in place
	copy(first[l.rank*n:], mine)
	one, many, stack := []int{n, 1}, []int{size * n, 1}, []int{size, n, 1}
	var errs []error
	add := func(err error) bool { errs = append(errs, err); return err == nil }
	ok := add(try(l, p, "Bcast", v, mine, one, nil, v.vector(root, 0, n),
		func(t, _ *Tensor[T]) error { return Bcast(c, t, root) },
		func(t, _ *Tensor[T]) (*Handle, error) { return Ibcast(c, t, root) }))
	gather := func(a, b *Tensor[T]) error { return Allgather(c, a, b) }
	igather := func(a, b *Tensor[T]) (*Handle, error) { return Iallgather(c, a, b) }
	alltoall := func(a, b *Tensor[T]) error { return Alltoall(c, a, b) }
	ialltoall := func(a, b *Tensor[T]) (*Handle, error) { return Ialltoall(c, a, b) }
	ok = ok && add(try(l, p, "Allgather", v, mine, one, stack, gathered, gather, igather)) &&
		add(try(l, p, "Allgather", v, mine, one, many, gathered, gather, igather)) &&
		add(try(l, p, "Allgather", v, first, many, nil, gathered, gather, igather)) &&
		add(try(l, p, "Alltoall", v, all, stack, many, mixed, alltoall, ialltoall)) &&
		add(try(l, p, "Alltoall", v, all, many, nil, mixed, alltoall, ialltoall))
	for _, op := range v.ops() {
		want := v.reduced(op, size, 0, n)
		reduce := func(a, b *Tensor[T]) error { return Reduce(c, a, b, op.op, root) }
		ireduce := func(a, b *Tensor[T]) (*Handle, error) { return Ireduce(c, a, b, op.op, root) }
		allreduce := func(a, b *Tensor[T]) error { return Allreduce(c, a, b, op.op) }
		iallreduce := func(a, b *Tensor[T]) (*Handle, error) { return Iallreduce(c, a, b, op.op) }
		scatter := func(a, b *Tensor[T]) error { return ReduceScatter(c, a, b, op.op) }
		iscatter := func(a, b *Tensor[T]) (*Handle, error) { return IreduceScatter(c, a, b, op.op) }
		own := v.reduced(op, size, l.rank*n, (l.rank+1)*n)
		onRoot, after := want, want
		if l.rank != root {
			onRoot, after = nil, mine
		}
		ok = ok && add(try(l, p, "Allreduce "+op.op.String(), v, mine, one, one, want, allreduce, iallreduce)) &&
			add(try(l, p, "Allreduce "+op.op.String(), v, mine, one, nil, want, allreduce, iallreduce)) &&
			add(try(l, p, "Reduce "+op.op.String(), v, mine, one, one, onRoot, reduce, ireduce)) &&
			add(try(l, p, "Reduce "+op.op.String(), v, mine, one, nil, after, reduce, ireduce)) &&
			add(try(l, p, "ReduceScatter "+op.op.String(), v, all, many, one, own, scatter, iscatter)) &&
			add(try(l, p, "ReduceScatter "+op.op.String(), v, all, stack, nil, own, scatter, iscatter))
	}
	return errors.Join(errs...)
}

func integers[T int | int8 | int16 | int32 | int64 | uint | uint8 | uint16 | uint32 | uint64 | uintptr](least int) numbers[T] {
	return numbers[T]{func(x int) T { return T(x) }, func(sum, n int) T { return T(sum / n) }, least, true, true}
}

func reals[T ~float32 | ~float64]() numbers[T] {
	return numbers[T]{func(x int) T { return T(x) }, func(sum, n int) T { return T(sum) / T(n) }, -2, true, false}
}

func halves[T cohort.Float16 | cohort.BFloat16](of func(float32) T) numbers[T] {
	return numbers[T]{func(x int) T { return of(float32(x)) }, func(sum, n int) T { return of(float32(sum) / float32(n)) }, 1, true, false} // no zeros, which have signs
}

type named float32 // a type with the numbers of another one

// someTypes does all operations on types of every size, and allTypes on all types.
func someTypes(l *lab, p placement, n int) error {
	return errors.Join(
		tryAll(l, p, integers[int8](-2), n),
		tryAll(l, p, reals[float32](), n),
		tryAll(l, p, halves(cohort.ToFloat16), n),
		tryAll(l, p, numbers[complex128]{func(x int) complex128 { return complex(float64(x), 0) },
			func(sum, n int) complex128 { return complex(float64(sum)/float64(n), 0) }, -2, false, false}, n),
	)
}

func allTypes(l *lab, p placement, n int) error {
	return errors.Join(
		someTypes(l, p, n),
		tryAll(l, p, integers[int16](-2), n), tryAll(l, p, integers[int32](-2), n), tryAll(l, p, integers[int64](-2), n), tryAll(l, p, integers[int](-2), n),
		tryAll(l, p, integers[uint8](0), n), tryAll(l, p, integers[uint16](0), n), tryAll(l, p, integers[uint32](0), n),
		tryAll(l, p, integers[uint64](0), n), tryAll(l, p, integers[uint](0), n), tryAll(l, p, integers[uintptr](0), n),
		tryAll(l, p, reals[float64](), n), tryAll(l, p, reals[named](), n), tryAll(l, p, halves(cohort.ToBFloat16), n),
		tryAll(l, p, numbers[complex64]{func(x int) complex64 { return complex(float32(x), 0) },
			func(sum, n int) complex64 { return complex(float32(sum)/float32(n), 0) }, -2, false, false}, n),
	)
}

// small has pieces so short that few elements take many of them.
var small = Config{Chunk: 1 << 10}

func TestCollectivesMatchFormulas(t *testing.T) {
	onRanks(t, []int{1, 2, 3, 4}, func(t *testing.T, world *cohort.Comm) error {
		l, err := newLab(world, small, soft.Config{})
		if err != nil {
			return err
		}
		for _, n := range []int{0, 1, 5, 333, 1100} {
			types := someTypes
			if (n == 1 || n == 333) && !testing.Short() && !racing {
				types = allTypes
			}
			for _, p := range placements {
				err = errors.Join(err, types(l, p, n))
			}
			if err != nil {
				break
			}
		}
		return l.close(err)
	})
}

// TestCollectivesOverProcesses runs all operations on all types, and parts of other tests, over the
// other backends.
func TestCollectivesOverProcesses(t *testing.T) {
	onProcesses(t, []int{1, 2, 3, 4}, "collectives")
}

func init() {
	programs["collectives"] = func(world *cohort.Comm) error {
		l, err := newLab(world, small, soft.Config{})
		if err != nil {
			return err
		}
		err = allTypes(l, placements[0], 7)
		crowded := l.size > 3 // MPI's ranks poll, so that a call takes milliseconds
		err = errors.Join(err, barriers(nil, world))
		if crowded {
			return l.close(err)
		}
		for _, n := range []int{1, 400} {
			err = errors.Join(err, someTypes(l, placements[3], n))
		}
		if err = l.close(errors.Join(err, tryAll(l, placements[0], reals[float64](), 400), stormOf(l, 20))); err == nil {
			err = halvesProgram(nil, world)
		}
		if err != nil {
			return err
		}
		if l, err = newLab(world, small, soft.Config{}); err != nil {
			return err
		}
		return l.close(reduceSteps(l, placements[2]))
	}
}

// Devices that do their work late, and in any order among streams, give the same results.
func TestCollectivesOnLazyDevices(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onRanks(t, []int{2, 3}, func(t *testing.T, world *cohort.Comm) error {
				l, err := newLab(world, small, soft.Config{Lazy: true, Seed: seed})
				if err != nil {
					return err
				}
				for _, p := range placements[1:] {
					err = errors.Join(err, tryAll(l, p, reals[float64](), 500), tryAll(l, p, halves(cohort.ToBFloat16), 700))
				}
				return l.close(err)
			})
		})
	}
}
