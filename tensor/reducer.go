package tensor

import (
	"errors"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Reducer combines many tensors, step by step, as data-parallel training does with its gradients: each is
// said to be ready as soon as it is, and is reduced together with its neighbours while others are still
// computed.
//
//	r, err := tensor.NewReducer(c, gradients, tensor.Average, 0)
//	for each step {
//		for i := range gradients { … compute gradient i …; err = r.Ready(i) }
//		err = r.Wait()
//	}
//
// Tensors that follow each other share a bucket, a row of memory that one [Iallreduce] reduces; one
// that fills a bucket by itself is reduced where it is. Buckets are started in their order, which is the
// same on all ranks, whatever the order in which tensors become ready.
//
// Ready can be called from any number of goroutines; Wait and Close from one, when no Ready is under way.
type Reducer[T cohort.Number] struct {
	c       *Comm
	op      Op
	tensors []*Tensor[T]
	member  []member // of the tensors
	buckets []bucket[T]

	mu      sync.Mutex
	ready   []bool
	waiting int // tensors that are not ready
	next    int // the bucket that is started next
	closed  bool
	err     error
}

// member says where a tensor is in its bucket.
type member struct{ bucket, at int }

// bucket is what is reduced at once.
type bucket[T cohort.Number] struct {
	first, last int          // its tensors: last is not one of them
	flat        *Tensor[T]   // their elements, or the only one itself
	stream      accel.Stream // of its own, for copies within a device; nil if there are none
	missing     int          // tensors that are not ready
	handle      *Handle      // nil: not started
}

// bucketDefault is the length of buckets: some pieces, so that most of the time copies and communication
// overlap within one, and short beside the gradients of a model, so that the first are through early.
const bucketDefault = 16 << 20

// NewReducer returns a Reducer of tensors, in the order in which they become ready; for training this is
// that of the layers from the last to the first. Buckets have as many bytes, or less; 0 stands for 16 MiB.
//
// Collective: all ranks of c call it, in the same order as its collectives, with tensors of the same
// lengths, and the same operation and length of buckets.
//
// Tensors: contiguous, and all on one device, which need not be the same for all ranks. They are there as
// long as the Reducer is used; each step reduces what they hold then, and leaves the results in them.
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer] for bad arguments; [cohort.ErrMismatch] if the ranks'
// lengths differ, or another rank's arguments are bad; [cohort.ErrAlloc] without memory for the buckets.
func NewReducer[T cohort.Number](c *Comm, tensors []*Tensor[T], op Op, bucketBytes int) (*Reducer[T], error) {
	r, err := newReducer(c, tensors, op, bucketBytes)
	if err != nil {
		return nil, failed("newreducer", err)
	}
	return r, nil
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
			return fault(cohort.ErrBuffer, "tensor %d is %v, and tensor 0 %v: all are to be on one device", i, t, tensors[0])
		}
	}
	return nil
}

// fill puts the tensors into buckets of so many elements.
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
			if b.stream, err = flat.dev.takeStream(); err != nil {
				return err
			}
			flat.stream = b.stream
		}
	}
	r.reset()
	return nil
}

// agree has all ranks find out whether their Reducers are the same; wrong is why this one's is not.
func (r *Reducer[T]) agree(wrong error, bucketBytes int) error {
	const ok = 1
	hash, state := uint64(14695981039346656037), uint64(ok) // FNV-1a
	add := func(n int) { hash = (hash ^ uint64(n)) * 1099511628211 }
	add(bucketBytes)
	add(int(kindOf[T]()))
	for _, b := range []byte(r.op.String()) {
		add(int(b))
	}
	for _, t := range r.tensors {
		add(t.Len())
	}
	if wrong != nil {
		hash, state = 0, 0
	}
	mine, all := of([]uint64{hash, state}, []int{2}), of(make([]uint64, 2*r.c.Size()), []int{r.c.Size(), 2})
	if err := Allgather(r.c, mine, all); err != nil || wrong != nil {
		return errors.Join(wrong, err)
	}
	for i := 0; i < len(all.data); i += 2 {
		if all.data[i+1] != ok {
			return fault(cohort.ErrMismatch, "rank %d has none: its arguments are bad, or there was no memory", i/2)
		}
	}
	for i := 2; i < len(all.data); i += 2 {
		if all.data[i] != all.data[0] {
			return fault(cohort.ErrMismatch, "the lengths of the tensors, their type, the operation, or the length of buckets is "+
				"another one on rank %d than on rank 0", i/2)
		}
	}
	return nil
}

// reset makes the Reducer ready for a step.
func (r *Reducer[T]) reset() {
	clear(r.ready)
	r.waiting, r.next, r.err = len(r.tensors), 0, nil
	for k := range r.buckets {
		b := &r.buckets[k]
		b.missing, b.handle = b.last-b.first, nil
	}
}

// Ready says that tensor i holds what is to be reduced, or will when the work is done that is in its
// stream now. It belongs to the Reducer until Wait returns.
//
// Collective: all ranks of c make all tensors ready in each step, in any order. What is started is
// started in the order of the buckets; other collectives of c must not come between them at different
// places on different ranks.
//
// Errors: [cohort.ErrCount] without a tensor i; [cohort.ErrRequest] if it was ready in this step already;
// [cohort.ErrClosed] after Close; what a device's driver says. Errors of the reductions are those of Wait.
func (r *Reducer[T]) Ready(i int) error {
	if r == nil {
		return failed("ready", errNoReducer())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return failed("ready", errReducerClosed())
	}
	switch {
	case i < 0 || i >= len(r.tensors):
		return failed("ready", fault(cohort.ErrCount, "tensor %d of %d", i, len(r.tensors)))
	case r.ready[i]:
		return failed("ready", fault(cohort.ErrRequest, "tensor %d has been ready since the last Wait", i))
	}
	r.ready[i] = true
	r.waiting--
	if err := r.gather(i); err != nil {
		r.err = errors.Join(r.err, err)
		r.c.spoil(err) // the other ranks wait for this bucket
	}
	r.buckets[r.member[i].bucket].missing--
	for r.next < len(r.buckets) && r.buckets[r.next].missing == 0 {
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

// gather copies a tensor into its bucket: on a device in the tensor's stream, behind which the bucket's
// then is.
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
	return behind(t.dev, b.stream, t.stream)
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

// behind has the later work of a stream wait for what is in another one.
func behind(d *Device, s, other accel.Stream) error {
	e, err := d.takeEvent()
	if err != nil {
		return err
	}
	if err = other.Record(e); err == nil {
		err = s.Follow(e)
	}
	d.giveEvent(e, err == nil)
	return err
}

// Wait waits until all tensors of this step hold their results, and begins the next one.
//
// Errors: [cohort.ErrRequest] if a tensor is not ready, and then nothing has changed; [cohort.ErrClosed] after
// Close; those of [Allreduce], and of a device's driver.
//
// Deadline: as for [Allreduce].
func (r *Reducer[T]) Wait() error {
	if r == nil {
		return failed("wait", errNoReducer())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return failed("wait", errReducerClosed())
	}
	if r.waiting > 0 {
		return failed("wait", fault(cohort.ErrRequest, "tensor %d, and %d others, are not ready", slices.Index(r.ready, false), r.waiting-1))
	}
	err := r.err
	for k := range r.buckets {
		b := &r.buckets[k]
		if b.handle == nil {
			continue
		}
		if e := b.handle.Wait(); e != nil {
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
	if err != nil {
		return failed("wait", err)
	}
	return nil
}

func errNoReducer() error {
	return fault(cohort.ErrBuffer, "the Reducer is nil: make one with NewReducer")
}

func errReducerClosed() error { return fault(cohort.ErrClosed, "the Reducer is closed") }

// Close gives the memory of the buckets back. There is no step under way: what was said to be ready has
// been waited for. To close again, or a nil Reducer, does nothing.
//
// Errors: what a device's driver says.
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
			b.flat.dev.giveStream(b.stream, true)
			b.stream = nil
		}
		if b.last-b.first > 1 && b.flat != nil {
			errs = append(errs, b.flat.Close())
		}
	}
	return errors.Join(errs...)
}

// AllreduceAll is [Allreduce], in place, of many tensors, short ones together.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with tensors of the same
// lengths and type, and the same operation.
//
// Tensors: as for [NewReducer].
//
// Errors: as for [NewReducer] and [Allreduce].
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func AllreduceAll[T cohort.Number](c *Comm, tensors []*Tensor[T], op Op) error {
	r, err := newReducer(c, tensors, op, 0)
	if err == nil {
		for i := range tensors {
			if err := r.Ready(i); err != nil {
				break // which Wait returns
			}
		}
		if r.waiting = 0; len(tensors) > 0 {
			err = r.Wait()
		}
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		return failed("allreduceall", err)
	}
	return nil
}
