package tensor

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Reducer combines many tensors, step by step, as data-parallel training does with gradients. A
// tensor is reported ready as soon as it is computed, and is reduced together with its neighbors
// while others are still being computed.
//
//	r, err := tensor.NewReducer(c, gradients, tensor.Average, 0)
//	for each step {
//		for i := range gradients { … compute gradient i …; err = r.Ready(i) }
//		err = r.Wait()
//	}
//
// Consecutive tensors share a bucket, a block of memory that one [Iallreduce] reduces. A tensor
// that fills a bucket alone is reduced in its own memory. Buckets start in their order, which is
// the same on all ranks, no matter in which order tensors become ready.
//
// Any number of goroutines may call Ready. Wait and Close must be called by one goroutine, while no
// Ready is running.
type Reducer[T cohort.Number] struct {
	c       *Comm
	op      Op
	tensors []*Tensor[T]
	member  []member // where each tensor is
	buckets []bucket[T]

	mu      sync.Mutex
	ready   []bool
	waiting int // tensors that are not ready
	next    int // the next bucket to start
	closed  bool
	err     error

	exact   []summer // of each bucket; nil: sums are rounded
	batches int      // added to them in this step
}

// member is the position of a tensor in its bucket.
type member struct{ bucket, at int }

// bucket is a group of tensors that are reduced together.
type bucket[T cohort.Number] struct {
	first, last int          // its tensors are first to last-1
	flat        *Tensor[T]   // the elements of its tensors, or its only tensor
	stream      accel.Stream // for copies within a device; nil if none are needed
	missing     int          // tensors that are not ready
	handle      *Handle      // nil: not started
}

// bucketDefault is the default length of buckets: several pieces, so that copies and communication
// overlap within a bucket, but small beside the gradients of a model, so that the first buckets
// finish early.
const bucketDefault = 16 << 20

// NewReducer returns a Reducer of tensors, listed in the order in which they become ready; in
// training this is the order of the layers from last to first. Buckets have at most bucketBytes
// bytes; 0 means 16 MiB.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with tensors of
// the same lengths, and the same operation and bucketBytes.
//
// Tensors: contiguous, all on one device, which may differ between ranks. They must stay open as
// long as the Reducer is used. Each step reduces their contents at that time and stores the results
// in them.
//
// Errors: on every rank, [cohort.ErrCount], [cohort.ErrBuffer] for wrong arguments of one;
// [cohort.ErrMismatch] if the arguments of the ranks differ; [cohort.ErrAlloc] if memory for the
// buckets is missing on one.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func NewReducer[T cohort.Number](c *Comm, tensors []*Tensor[T], op Op, bucketBytes int) (*Reducer[T], error) {
	r, err := newReducer(c, tensors, op, bucketBytes)
	return r, failed("newreducer", err)
}

func newReducer[T cohort.Number](c *Comm, tensors []*Tensor[T], op Op, bucketBytes int) (*Reducer[T], error) {
	if c == nil || c.core == nil {
		return nil, fault(cohort.ErrComm, "the communicator is nil")
	}
	if bucketBytes == 0 {
		bucketBytes = bucketDefault
	}
	r := &Reducer[T]{c: c, op: op, tensors: slices.Clone(tensors), ready: make([]bool, len(tensors))}
	wrong := reducible(tensors, bucketBytes)
	if wrong == nil {
		wrong = r.fill(bucketBytes / view.Size[T]())
	}
	if err := r.agree(wrong, bucketBytes); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// reducible returns an error for tensors that cannot be reduced together.
func reducible[T cohort.Number](tensors []*Tensor[T], bucketBytes int) error {
	if bucketBytes < 0 {
		return fault(cohort.ErrCount, "buckets of %d bytes", bucketBytes)
	}
	for i, t := range tensors {
		if err := t.needContiguous(); err != nil {
			return fault(err, "tensor %d", i)
		}
		if t.dev != tensors[0].dev {
			return fault(cohort.ErrBuffer, "tensor %d is %v, but tensor 0 is %v; put all on one device", i, t, tensors[0])
		}
	}
	return nil
}

// fill assigns the tensors to buckets of at most most elements.
func (r *Reducer[T]) fill(most int) error {
	end := 0 // elements of the last bucket
	for i, t := range r.tensors {
		if i == 0 || end+t.n > most {
			r.buckets = append(r.buckets, bucket[T]{first: i})
			end = 0
		}
		r.member = append(r.member, member{len(r.buckets) - 1, end})
		end += t.n
		r.buckets[len(r.buckets)-1].last = i + 1
	}
	for k := range r.buckets {
		b := &r.buckets[k]
		if b.flat = r.tensors[b.first]; b.last-b.first == 1 {
			continue
		}
		last := b.last - 1
		flat, err := create[T](b.flat.dev, []int{r.member[last].at + r.tensors[last].n})
		if err != nil {
			b.flat = nil
			return err
		}
		if b.flat = flat; flat.dev != nil {
			if b.stream, err = flat.dev.streams.take(); err != nil {
				return err
			}
			flat.stream = b.stream
		}
	}
	r.reset()
	return nil
}

// agree checks that all ranks make the same Reducer. wrong is the error of this rank's arguments.
func (r *Reducer[T]) agree(wrong error, bucketBytes int) error {
	h := fnv.New64a()
	fmt.Fprint(h, bucketBytes, kindOf[T](), r.op)
	for _, t := range r.tensors {
		fmt.Fprint(h, " ", t.Len())
	}
	ticket, err := r.c.queue.take(backend.Bcast)
	if err == nil {
		err = r.c.awaitTurn(ticket)
	}
	if err != nil {
		return errors.Join(wrong, err)
	}
	defer r.c.queue.done()
	return agree(r.c.coll, h.Sum64(), wrong, "the tensors' lengths or type, the operation or bucketBytes differ: their hash is %#x, on rank 0 %#x")
}

// reset prepares the next step.
func (r *Reducer[T]) reset() {
	clear(r.ready)
	r.waiting, r.next, r.err = len(r.tensors), 0, nil
	for k := range r.buckets {
		b := &r.buckets[k]
		b.missing, b.handle = b.last-b.first, nil
	}
}

// Ready reports that tensor i can be reduced once the work now in its stream is done. The tensor
// belongs to the Reducer until Wait returns.
//
// Collective: all ranks of c report all tensors in each step, in any order. Ready starts
// collectives in the order of the buckets; other collectives of c must come at the same place
// between them on all ranks.
//
// Errors: [cohort.ErrCount] if i is out of range; [cohort.ErrRequest] if tensor i is ready already;
// [cohort.ErrClosed] after Close; those of the device's driver. Errors of the reductions are
// returned by Wait.
func (r *Reducer[T]) Ready(i int) error {
	if err := r.enter(); err != nil {
		return failed("ready", err)
	}
	defer r.mu.Unlock()
	switch {
	case i < 0 || i >= len(r.tensors):
		return failed("ready", fault(cohort.ErrCount, "tensor %d of %d", i, len(r.tensors)))
	case r.ready[i]:
		return failed("ready", fault(cohort.ErrRequest, "tensor %d is ready already; call Wait first", i))
	}
	r.ready[i] = true
	r.waiting--
	if err := r.gather(i); err != nil {
		r.err = errors.Join(r.err, err)
		r.c.breakWith(err) // the other ranks wait for this bucket
	}
	r.buckets[r.member[i].bucket].missing--
	for r.exact == nil && r.next < len(r.buckets) && r.buckets[r.next].missing == 0 {
		b := &r.buckets[r.next]
		r.next++
		h, err := Iallreduce(r.c, b.flat, b.flat, r.op)
		if b.handle = h; err != nil {
			r.err = errors.Join(r.err, err)
		}
	}
	if r.err != nil {
		return failed("ready", r.err)
	}
	return nil
}

// gather copies a tensor into its bucket. On a device the copy runs in the tensor's stream, and the
// bucket's stream waits for it.
func (r *Reducer[T]) gather(i int) error {
	b, t := &r.buckets[r.member[i].bucket], r.tensors[i]
	if b.flat == t || t.n == 0 {
		return nil
	}
	at := r.member[i].at
	if t.dev == nil {
		copy(b.flat.data[at:], t.data)
		return nil
	}
	if err := t.stream.Within(b.flat.at+accel.Address(at*view.Size[T]()), t.at, t.size()); err != nil {
		return err
	}
	m, err := markIn(t.dev, t.stream)
	if err == nil {
		err = b.stream.Follow(m.event)
		m.forget()
	}
	return err
}

// scatter copies a bucket's results to its tensors.
func (r *Reducer[T]) scatter(b *bucket[T]) error {
	if b.last-b.first == 1 {
		return nil
	}
	for i := b.first; i < b.last; i++ {
		t, at := r.tensors[i], r.member[i].at
		switch {
		case t.n == 0:
		case t.dev == nil:
			copy(t.data, b.flat.data[at:])
		default:
			if err := b.stream.Within(t.at, b.flat.at+accel.Address(at*view.Size[T]()), t.size()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Wait waits until all tensors of this step hold their results, and begins the next step.
//
// Collective: all ranks of c call it once in each step.
//
// Errors: [cohort.ErrRequest], without further effect, if a tensor is not ready; [cohort.ErrClosed]
// after Close; those of [Allreduce] and of the device's driver.
//
// Deadline: as for [Allreduce].
func (r *Reducer[T]) Wait() error {
	if err := r.enter(); err != nil {
		return failed("wait", err)
	}
	defer r.mu.Unlock()
	if r.waiting > 0 {
		return failed("wait", r.notReady())
	}
	if r.exact != nil {
		return failed("wait", r.waitExact())
	}
	err := r.err
	for k := range r.buckets {
		b := &r.buckets[k]
		if b.handle == nil {
			continue
		}
		if _, e := b.handle.Wait(); e != nil {
			err = errors.Join(err, e)
		} else if e := r.scatter(b); e != nil {
			err = errors.Join(err, e)
		}
	}
	for k := range r.buckets {
		if b := &r.buckets[k]; b.stream != nil {
			if e := b.stream.Sync(); e != nil {
				err = errors.Join(err, e)
			}
		}
	}
	r.reset()
	return failed("wait", err)
}

// enter locks an open Reducer for a call.
func (r *Reducer[T]) enter() error {
	if r == nil {
		return fault(cohort.ErrBuffer, "the Reducer is nil; make one with NewReducer")
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return fault(cohort.ErrClosed, "the Reducer is closed")
	}
	return nil
}

// Close frees the buckets. No step may be pending: call Wait first. Closing again, or closing a nil
// Reducer, does nothing.
//
// Not collective.
//
// Errors: those of the device's driver.
func (r *Reducer[T]) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	var errs []error
	for k := range r.buckets {
		b := &r.buckets[k]
		if b.stream != nil {
			b.flat.dev.streams.give(b.stream, true)
			b.stream = nil
		}
		if b.last-b.first > 1 && b.flat != nil {
			errs = append(errs, b.flat.Close())
		}
	}
	return errors.Join(errs...)
}

// AllreduceAll is an in-place [Allreduce] of many tensors; short ones are reduced together.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with tensors of
// the same lengths and type, and the same operation.
//
// Tensors: as for [NewReducer].
//
// Errors: those of [NewReducer] and [Allreduce].
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func AllreduceAll[T cohort.Number](c *Comm, tensors []*Tensor[T], op Op) error {
	r, err := newReducer(c, tensors, op, 0)
	if err == nil {
		for i := range tensors {
			if err := r.Ready(i); err != nil {
				break // Wait returns the error
			}
		}
		if r.waiting = 0; len(tensors) > 0 {
			err = r.Wait()
		}
		err = errors.Join(err, r.Close())
	}
	return failed("allreduceall", err)
}
