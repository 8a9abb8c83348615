package tensor

import (
	"errors"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/exact"
	"github.com/cohort-hpc/cohort/internal/view"
)

// summer is an [exact.Accumulator] of the elements of a bucket.
type summer interface {
	add(bucket []byte) error
	reduce(c *cohort.Comm, bucket []byte) error
}

type sums[F float32 | float64] struct{ *exact.Accumulator[F] }

func (s sums[F]) add(b []byte) error { return s.Add(view.Of[F](b)) }

func (s sums[F]) reduce(c *cohort.Comm, b []byte) error {
	defer s.Reset()
	return s.Allreduce(c, view.Of[F](b))
}

// Exact makes the Reducer add without rounding errors, with package exact. A step may then consist of several batches
// on each rank: [Reducer.Accumulate] ends each but the last, and Wait the last. The results depend on the batches alone,
// to the last bit, not on their order or the number of ranks. Average divides by the number of batches on all ranks.
//
//	err = r.Exact()
//	for each step {
//		for b := range batches {
//			for i := range gradients { … compute gradient i …; err = r.Ready(i) }
//			if b < batches-1 { err = r.Accumulate() } else { err = r.Wait() }
//		}
//	}
//
// Ranks may have different numbers of batches, at least one each. Communication takes place in Wait, and takes several
// times as long as otherwise (docs/exact.md).
//
// Not collective, but all ranks call it, before the first step.
//
// Errors: [cohort.ErrOp] if the operation is not Sum or Average; [cohort.ErrType] if T is not a float32 or float64;
// [cohort.ErrNotSupported] for tensors on a device; [cohort.ErrRequest] if a tensor is ready; [cohort.ErrClosed] after Close.
func (r *Reducer[T]) Exact() error {
	if err := r.enter(); err != nil {
		return failed("exact", err)
	}
	defer r.mu.Unlock()
	kind := kindOf[T]()
	switch {
	case r.op.op != cohort.Sum:
		return failed("exact", fault(cohort.ErrOp, "the operation is %v; want sum or average", r.op))
	case kind != backend.Float32 && kind != backend.Float64:
		return failed("exact", fault(cohort.ErrType, "the tensors have elements of %s; want float32 or float64", kind))
	case r.waiting < len(r.tensors):
		return failed("exact", fault(cohort.ErrRequest, "a tensor is ready already; call Exact before the first step"))
	case len(r.tensors) > 0 && r.tensors[0].dev != nil:
		return failed("exact", fault(cohort.ErrNotSupported, "the tensors are on a device; want host memory"))
	}
	r.exact = make([]summer, len(r.buckets))
	for k, b := range r.buckets {
		if kind == backend.Float32 {
			r.exact[k] = sums[float32]{exact.New[float32](b.flat.n)}
		} else {
			r.exact[k] = sums[float64]{exact.New[float64](b.flat.n)}
		}
	}
	return nil
}

// Accumulate adds all tensors to the sums of this step, and begins its next batch. The tensors belong to the program again.
//
// Not collective.
//
// Errors: [cohort.ErrRequest], without further effect, if Exact was not called or a tensor is not ready;
// [cohort.ErrClosed] after Close.
func (r *Reducer[T]) Accumulate() error {
	if err := r.enter(); err != nil {
		return failed("accumulate", err)
	}
	defer r.mu.Unlock()
	switch {
	case r.exact == nil:
		return failed("accumulate", fault(cohort.ErrRequest, "the Reducer is not exact; call Exact before the first step"))
	case r.waiting > 0:
		return failed("accumulate", r.notReady())
	}
	return failed("accumulate", r.accumulate())
}

func (r *Reducer[T]) accumulate() error {
	var errs []error
	for k, s := range r.exact {
		errs = append(errs, s.add(r.bytes(k)))
	}
	r.batches++
	r.reset()
	return errors.Join(errs...)
}

// bytes returns the memory of a bucket.
func (r *Reducer[T]) bytes(k int) []byte {
	return view.Bytes(r.buckets[k].flat.data[:r.buckets[k].flat.n])
}

// notReady returns the error of a step in which tensors are missing.
func (r *Reducer[T]) notReady() error {
	return fault(cohort.ErrRequest, "tensor %d and %d others are not ready; call Ready first", slices.Index(r.ready, false), r.waiting-1)
}

// waitExact is Wait of an exact Reducer.
func (r *Reducer[T]) waitExact() error {
	if err := r.accumulate(); err != nil {
		return err
	}
	batches := r.batches
	r.batches = 0
	ticket, err := r.c.queue.take(backend.Allreduce)
	if err == nil {
		err = r.c.awaitTurn(ticket)
	}
	if err != nil {
		return err
	}
	defer r.c.queue.done()
	all, err := cohort.AllreduceOne(r.c.coll, batches, cohort.Sum)
	for k := 0; k < len(r.exact) && err == nil; k++ {
		if err = r.exact[k].reduce(r.c.coll, r.bytes(k)); err == nil {
			if r.op.average {
				divide(kindOf[T](), r.bytes(k), all)
			}
			err = r.scatter(&r.buckets[k])
		}
	}
	return err
}
