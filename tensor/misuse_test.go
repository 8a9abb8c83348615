package tensor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel/soft"
)

// What is nil, or the zero value, gives an error or does nothing, as in the root package.
func TestNilHandles(t *testing.T) {
	for _, c := range []*Comm{nil, {}} {
		if n, err := c.Size(), errors.Join(c.Close(), c.WithContext(context.Background()).Close()); n != 0 || err != nil {
			t.Errorf("a nil communicator: size %d, Close %v", n, err)
		}
		if r := c.Rank(); r != cohort.Undefined {
			t.Errorf("a nil communicator's rank is %d", r)
		}
	}
	for _, h := range []*Handle{nil, {}} {
		<-h.Done()
		if st := h.Status(); h.Wait() != nil || h.Err() != nil || st.Source != cohort.Undefined || st.Tag != cohort.Undefined || st.Bytes() != cohort.Undefined {
			t.Errorf("a handle of no operation: Wait %v, Err %v, Status %v", h.Wait(), h.Err(), st)
		}
	}
	x := must[int](1)
	for _, s := range []*Stream{nil, {}} {
		_, err := x.On(s)
		for _, err := range []error{err, s.Sync()} {
			if err = is(err, cohort.ErrBuffer, "the stream is nil"); err != nil {
				t.Error(err)
			}
		}
		if s.Handle() != 0 || s.Close() != nil {
			t.Errorf("a nil stream: handle %#x, Close %v", s.Handle(), s.Close())
		}
	}
	var r *Reducer[int]
	if err := errors.Join(is(r.Ready(0), cohort.ErrBuffer, "nil"), is(r.Wait(), cohort.ErrBuffer, "nil"), r.Close()); err != nil {
		t.Error(err)
	}
}

// WaitAny takes more handles than one select does.
func TestWaitAnyOfMany(t *testing.T) {
	const n = 2*selectMost + 10
	for _, last := range []int{0, selectMost, n - 1} {
		all := make([]*Handle, n)
		if i, err := WaitAny(all...); i != -1 || err != nil {
			t.Errorf("of nil handles: %d, %v", i, err)
		}
		for i := range all {
			if i != 5 {
				all[i] = newHandle()
			}
		}
		go all[last].finish(cohort.Status{}, cohort.ErrTimeout)
		if i, err := WaitAny(all...); i != last || err != cohort.ErrTimeout {
			t.Errorf("handle %d is done, got %d and %v", last, i, err)
		}
	}
}

// The zero Tensor has no shape, and no operation takes it for a tensor of one element.
func TestZeroTensor(t *testing.T) {
	alone(t, func(c *Comm) error {
		var zero Tensor[float32]
		number := must[float32]()
		h, err := Isend(c, number, 0, 1)
		if err != nil {
			return err
		}
		_, recv := Recv(c, &zero, 0, 1)
		_, alloc := NewReducer(c, []*Tensor[float32]{&zero}, Sum, 0)
		for i, err := range []error{recv, alloc, Send(c, &zero, 0, 1), Allreduce(c, &zero, &zero, Sum), Bcast(c, &zero, 0)} {
			if err = is(err, cohort.ErrBuffer, "the zero Tensor", "New"); err != nil {
				return fmt.Errorf("case %d: %w", i, err)
			}
		}
		_, err = Recv(c, number, 0, 1)
		return errors.Join(err, h.Wait())
	})
}

// A setting that is wrong on one rank, as one of a node's environment may be, does not leave the others
// waiting, and the world stays usable.
func TestNewCommWrongOnOneRank(t *testing.T) {
	onRanks(t, []int{2, 3}, func(_ *testing.T, world *cohort.Comm) error {
		for _, bad := range []Config{{Chunk: -1}, {Direct: "sometimes"}} {
			var err error
			if world.Rank() == 1 {
				_, err = NewComm(world, &bad)
				err = is(err, cohort.ErrInit, "COHORT_TENSOR_")
			} else {
				_, err = NewComm(world, nil)
				err = is(err, cohort.ErrMismatch, "another rank")
			}
			if err = errors.Join(err, world.Barrier()); err != nil {
				return err
			}
		}
		return nil
	})
}

// The ranks compare what a sum is for before a job of several pieces.
func TestAverageIsNoSum(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c, err := NewComm(world, &small)
		if err != nil {
			return err
		}
		err = is(Allreduce1[float32](c, 2000, []Op{Sum, Average}[c.Rank()]), cohort.ErrMismatch, "count 2000, average")
		return errors.Join(err, world.Barrier(), c.Close())
	})
}

// After Close the memory of a Reducer's buckets may be somebody else's.
func TestReducerClosed(t *testing.T) {
	onRanks(t, []int{1}, func(_ *testing.T, world *cohort.Comm) error {
		l, err := newLab(world, small, soft.Config{})
		if err != nil {
			return err
		}
		var tensors []*Tensor[float32]
		for range 2 {
			x, err := must[float32](8).To(l.devs[0])
			if err != nil {
				return err
			}
			tensors = append(tensors, x)
		}
		r, err := NewReducer(l.c, tensors, Sum, 0)
		if err != nil {
			return err
		}
		err = errors.Join(r.Close(), r.Close(), is(r.Ready(0), cohort.ErrClosed, "Reducer"), is(r.Wait(), cohort.ErrClosed, "Reducer"))
		return l.close(errors.Join(err, tensors[0].Close(), tensors[1].Close()))
	})
}
