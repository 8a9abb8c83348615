package tensor

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// late puts work into a tensor's stream that waits for let, and holds up all work behind it.
func late[T cohort.Number](x *Tensor[T], let <-chan struct{}, f func(data []T)) error {
	return x.stream.(*soft.Stream).Do(func(mem func(accel.Address, int) []byte) {
		<-let
		f(view.Of[T](mem(x.at, x.size())))
	})
}

// onOwnStream returns a tensor on a device with the data, bound to its own stream, and a function
// that closes both.
func onOwnStream[T cohort.Number](d *Device, data []T) (*Tensor[T], func() error, error) {
	t, err := of(data, []int{len(data)}).To(d)
	if err != nil {
		return nil, nil, err
	}
	s, err := d.NewStream()
	if err != nil {
		return nil, nil, err
	}
	x, err := t.On(s)
	return x, func() error { return errors.Join(s.Close(), t.Close()) }, err
}

// While one piece of a collective is communicated, the next is copied from the device and the
// previous ones are copied to it.
func TestCollectivesOverlapCopiesAndCommunication(t *testing.T) {
	for _, coll := range []backend.Coll{backend.Allreduce, backend.Bcast} {
		t.Run(coll.String(), func(t *testing.T) {
			onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error { return pipelined(world, coll) })
		})
	}
}

// pipelined has rank 0 do a collective, while rank 1 does its part piece by piece after checking
// what rank 0 has done.
func pipelined(world *cohort.Comm, coll backend.Coll) error {
	const piece, pieces, blocked = 1 << 17, 6, 2 // after blocked pieces, copies to the device must wait
	const m, n = piece / 4, pieces * piece / 4
	l, err := newLab(world, Config{Chunk: piece}, soft.Config{})
	if err != nil {
		return err
	}
	v := reals[float32]()
	if l.rank == 1 {
		co := &collective{c: l.c, form: form{coll: coll, kind: backend.Float32, n: n, pieces: pieces}, op: Sum}
		on := co.handle()
		err = world.Barrier()
		data := v.vector(1, 0, n)
		for i := range pieces {
			part := data[i*m : (i+1)*m]
			if err = errors.Join(err, world.Barrier()); err != nil {
				return err
			}
			if coll == backend.Bcast {
				err = cohort.Bcast(&on, part, 0)
			} else {
				err = cohort.Allreduce(&on, part, part, cohort.Sum)
			}
			if i == blocked-1 {
				err = errors.Join(err, world.Barrier())
			}
		}
		if want := v.vector(0, 0, n); coll == backend.Bcast && !slices.Equal(data, want) {
			err = errors.Join(err, errors.New("rank 1 got something else than rank 0 sent"))
		}
		return l.close(err)
	}
	x, freeX := must.Get2(onOwnStream(l.devs[0], v.vector(0, 0, n)))
	y, freeY, err := onOwnStream(l.devs[0], make([]float32, n))
	if err != nil {
		return err
	}
	l.devs[0].Trim()
	before := l.drv.Stats()
	down := func() int { return (l.drv.Stats().ToHost.Pinned.Bytes - before.ToHost.Pinned.Bytes) / piece }
	up := func() int { return (l.drv.Stats().ToDevice.Pinned.Bytes - before.ToDevice.Pinned.Bytes) / piece }
	writes, let := coll != backend.Bcast, make(chan struct{})
	var h *Handle
	if writes { // work in its stream keeps everything from being copied to the tensor
		if err = late(y, let, func([]float32) {}); err == nil {
			h, err = Iallreduce(l.c, x, y, Sum)
		}
	} else {
		h, err = Ibcast(l.c, x, 0)
	}
	if err != nil {
		return err
	}
	until(func() bool { return down() >= 2 }) // while rank 1 takes no part yet
	err = world.Barrier()
	for i := range pieces {
		// This piece waits for rank 1; the next is on the host, and the previous ones are on the
		// device.
		until(func() bool { return down() >= min(i+2, pieces) })
		if writes && i >= blocked {
			until(func() bool { return up() >= i })
		}
		if err = errors.Join(err, world.Barrier()); err != nil {
			return err
		}
		if i == blocked-1 {
			err = world.Barrier() // rank 1 has done this piece
			if n := up(); n > 0 {
				err = errors.Join(err, fmt.Errorf("%d pieces were copied to a tensor in which work before them was still to be done", n))
			}
			close(let)
		}
	}
	err = errors.Join(err, WaitAll(h))
	if pinned := l.drv.Stats().Pinned; pinned > slotsMost*piece {
		err = errors.Join(err, fmt.Errorf("%d bytes are pinned, want %d at most", pinned, slotsMost*piece))
	}
	if writes {
		got, err2 := y.To(CPU)
		if err = errors.Join(err, err2); err == nil && !slices.Equal(got.Data(), v.reduced(v.ops()[0], 2, 0, n)) {
			err = errors.New("rank 0 has another result")
		}
	}
	return l.close(errors.Join(err, freeX(), freeY()))
}

// Tensors of a Reducer get their results while later ones are still being computed: a bucket starts
// when it is full, not in Wait.
func TestReducerStartsFullBuckets(t *testing.T) {
	const bytes = 1 << 10 // a bucket: the first tensor fills one, the next two share one, and the last has its own
	lens := []int{256, 100, 100, 250}
	onRanks(t, []int{2, 3}, func(_ *testing.T, world *cohort.Comm) error {
		for _, p := range placements[:3] {
			l, err := newLab(world, small, soft.Config{})
			if err != nil {
				return err
			}
			if err = l.close(reducedEarly(l, p, lens, bytes)); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	})
}

func reducedEarly(l *lab, p placement, lens []int, bytes int) (err error) {
	v, last := reals[float32](), len(lens)-1
	dev, _ := p.where(l)
	var tensors []*Tensor[float32]
	for i, n := range lens {
		x, free := zeros[float32](n), func() error { return nil }
		if i < last {
			copy(x.Data(), v.vector(l.rank, i, i+n))
		}
		if dev != nil {
			if x, free, err = onOwnStream(dev, x.Data()); err != nil {
				return err
			}
		}
		defer func() { err = errors.Join(err, free()) }()
		tensors = append(tensors, x)
	}
	r, err := NewReducer(l.c, tensors, Average, bytes)
	if err != nil {
		return err
	}
	let := make(chan struct{})
	finish := sync.OnceFunc(func() { close(let) })
	defer finish() // before closing streams, which waits for their work
	compute := func(data []float32) { copy(data, v.vector(l.rank, last, last+lens[last])) }
	for i := range last {
		err = errors.Join(err, r.Ready(i))
	}
	if dev != nil { // the last one can be ready now: it is when the work in its stream is done
		err = errors.Join(err, late(tensors[last], let, compute), r.Ready(last))
	}
	if err != nil {
		return err
	}
	check := func(i int, in *Tensor[float32], at int) error {
		host, err := in.To(CPU)
		if err != nil {
			return err
		}
		if got, want := host.Data()[at:at+lens[i]], v.reduced(v.ops()[2], l.size, i, i+lens[i]); !slices.Equal(got, want) {
			return fmt.Errorf("tensor %d is %v, want %v", i, got, want)
		}
		return nil
	}
	for k := range 2 {
		h := r.buckets[k].handle
		if h == nil {
			return fmt.Errorf("bucket %d is full, and not started", k)
		}
		err = errors.Join(err, WaitAll(h))
	}
	shared := r.buckets[1].flat // Wait copies the results from it
	if err = errors.Join(err, check(0, tensors[0], 0), check(1, shared, 0), check(2, shared, lens[1])); err != nil {
		return err
	}
	h := r.buckets[2].handle
	if dev == nil && h != nil {
		return errors.New("the last bucket is started, and its tensor is not ready")
	}
	if dev != nil {
		select {
		case <-h.Done():
			return errors.New("the last bucket is done before its tensor was ready")
		default:
		}
	}
	if finish(); dev == nil {
		compute(tensors[last].Data())
		err = r.Ready(last)
	}
	err = errors.Join(err, r.Wait())
	for i, x := range tensors {
		err = errors.Join(err, check(i, x, 0))
	}
	return errors.Join(err, r.Close())
}

// Barrier and Ibarrier end only after the last rank has called them.
func TestBarrierWaitsForAllRanks(t *testing.T) {
	onRanks(t, []int{1, 2, 3, 4}, barriers) // TestCollectivesOverProcesses runs it, too
}

func barriers(_ *testing.T, world *cohort.Comm) error {
	c := must.Get(NewComm(world, &small))
	for late := range c.Size() {
		for _, blocking := range []bool{true, false} {
			if err := barrierWaits(world, c, late, blocking); err != nil {
				return fmt.Errorf("rank %d: rank %d comes late, blocking %v: %w", c.Rank(), late, blocking, err)
			}
		}
	}
	return c.Close()
}

// barrierWaits has all ranks but one enter a barrier and exchange messages with that one, which
// enters when all the others have reported that they still wait.
func barrierWaits(world *cohort.Comm, c *Comm, late int, blocking bool) error {
	const talks, tag = 5, 6 // a barrier that does not wait would end before the last message
	barrier := func() (*Handle, error) {
		if !blocking {
			return c.Ibarrier()
		}
		h := newHandle()
		go func() { h.finish(noStatus, c.Barrier()) }()
		return h, nil
	}
	word := []byte{1}
	if c.Rank() == late {
		for range talks {
			for r := range c.Size() {
				if r == late {
					continue
				}
				if _, err := cohort.Recv(world, word, r, tag); err != nil {
					return err
				}
				if err := cohort.Send(world, word, r, tag); err != nil {
					return err
				}
			}
		}
		h, err := barrier()
		if err != nil {
			return err
		}
		return WaitAll(h)
	}
	h, err := barrier()
	if err != nil {
		return err
	}
	ended := 0
	for range talks {
		select { // before the message that may be the last one the other rank waits for
		case <-h.Done():
			ended++
		default:
		}
		if err := cohort.Send(world, word, late, tag); err != nil {
			return err
		}
		if _, err := cohort.Recv(world, word, late, tag); err != nil {
			return err
		}
	}
	err = WaitAll(h)
	if ended > 0 {
		err = errors.Join(err, fmt.Errorf("the barrier had ended before rank %d came", late))
	}
	return err
}
