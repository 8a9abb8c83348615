package tensor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// call holds the arguments of a collective. Bcast's tensor is both send and recv.
type call[T cohort.Number] struct {
	coll       backend.Coll
	send, recv *Tensor[T]
	op         Op
	root       int
}

// blocking does a collective. Tensors in the processor's memory that are no longer than a piece
// need only one call of the root package.
func blocking[T cohort.Number](c *Comm, x call[T]) error {
	if c == nil || c.core == nil {
		return x.failed("", fault(cohort.ErrComm, "the communicator is nil"))
	}
	wrong := x.check(c)
	ticket, err := c.queue.take(x.coll)
	switch {
	case err != nil:
	case wrong == nil && !x.plain(c):
		err = x.collective(c).mark().do(ticket)
	default:
		if err = c.awaitTurn(ticket); err == nil {
			err = x.whole(c, wrong)
			c.queue.done()
		}
	}
	if err != nil {
		return x.failed("", err)
	}
	return nil
}

// start starts a collective.
func start[T cohort.Number](c *Comm, x call[T]) (*Handle, error) {
	if c == nil || c.core == nil {
		return nil, x.failed("i", fault(cohort.ErrComm, "the communicator is nil"))
	}
	wrong := x.check(c)
	ticket, err := c.queue.take(x.coll)
	if err != nil {
		return nil, x.failed("i", err)
	}
	h, co := newHandle(), (*collective)(nil)
	if wrong == nil && x.coll != backend.Barrier {
		co = x.collective(c).mark()
	}
	go func() {
		var err error
		if co != nil {
			err = co.do(ticket)
		} else if err = c.awaitTurn(ticket); err == nil {
			err = x.whole(c, wrong)
			c.queue.done()
		}
		if err != nil {
			err = x.failed("i", err)
		}
		h.finish(noStatus, err)
	}()
	return h, nil
}

// awaitTurn waits until all operations before this one are done. If it returns nil, the caller has
// the turn.
func (c *Comm) awaitTurn(ticket uint64) error {
	if !c.queue.await(c.ctx, ticket, 0) {
		return c.abandon(ticket)
	}
	if err := c.core.ended(); err != nil {
		c.queue.done()
		return err
	}
	return nil
}

// abandon gives up an operation whose context has ended before its turn. The other ranks wait for this one in the
// operation, so the communicator breaks, but only when the operations before it are done.
func (c *Comm) abandon(ticket uint64) error {
	err := c.expired()
	go func() {
		c.queue.await(context.Background(), ticket, 0)
		c.breakWith(err)
		c.queue.done()
	}()
	return err
}

// expired is the error of an operation whose context ended before its turn.
func (c *Comm) expired() error {
	if c.ctx.Err() == context.DeadlineExceeded {
		return fault(cohort.ErrTimeout, "waiting for its tensor or for earlier operations")
	}
	return fault(cohort.ErrCanceled, "waiting for its tensor or for earlier operations: %v", context.Cause(c.ctx))
}

// ended returns why collectives have ended on this rank, or nil.
func (k *core) ended() error {
	if why := k.failure.Load(); why != nil {
		return fault(cohort.ErrBroken, "an earlier operation failed on this rank: %v", *why)
	}
	return nil
}

// nameOf returns the name of a collective in errors.
func nameOf(coll backend.Coll) string {
	if coll == backend.ReduceScatterBlock {
		return "reducescatter"
	}
	return strings.ToLower(coll.String())
}

// failed adds the operation and its tensors to an error.
func (x *call[T]) failed(form string, err error) error {
	switch {
	case x.coll == backend.Barrier:
	case x.send == x.recv || x.recv == nil:
		err = fmt.Errorf("%v: %w", x.send, err)
	case x.send == nil:
		err = fmt.Errorf("nil to %v: %w", x.recv, err)
	default:
		err = fmt.Errorf("%v to %v: %w", x.send, x.recv, err)
	}
	return failed(form+nameOf(x.coll), err)
}

// reads and writes report whether this rank's send or recv is used.
func (x *call[T]) reads(c *Comm) bool { return x.coll != backend.Bcast || c.Rank() == x.root }
func (x *call[T]) writes(c *Comm) bool {
	switch x.coll {
	case backend.Bcast:
		return c.Rank() != x.root
	case backend.Reduce:
		return c.Rank() == x.root
	}
	return true
}

// inPlace reports whether send and recv are the same memory.
func (x *call[T]) inPlace() bool {
	a, b := x.send, x.recv
	if a == b {
		return true
	}
	return a.dev == b.dev && a.n == b.n && a.n > 0 && a.at == b.at && (a.dev != nil || &a.data[0] == &b.data[0])
}

// check returns an error for wrong arguments of this rank.
func (x *call[T]) check(c *Comm) error {
	if x.coll == backend.Barrier {
		return nil
	}
	if rooted := x.coll == backend.Bcast || x.coll == backend.Reduce; rooted && (x.root < 0 || x.root >= c.Size()) {
		return fault(cohort.ErrRoot, "root %d of %d ranks", x.root, c.Size())
	}
	if err := x.send.needContiguous(); err != nil {
		return err
	}
	if !x.writes(c) {
		return nil
	}
	if err := x.recv.needContiguous(); err != nil {
		return err
	}
	if err := x.fit(c.Size()); err != nil || x.inPlace() {
		return err
	}
	if overlap(x.send, x.recv) {
		return fault(cohort.ErrBuffer, "the tensors overlap; pass the same tensor twice, or separate ones")
	}
	return nil
}

// fit returns an error if the shapes of send and recv do not match.
func (x *call[T]) fit(size int) error {
	a, b := x.send, x.recv
	switch x.coll {
	case backend.Reduce, backend.Allreduce:
		if !slices.Equal(a.shape, b.shape) {
			return fault(cohort.ErrCount, "the shapes differ")
		}
	case backend.Allgather:
		if x.inPlace() {
			return divides(b, size)
		}
		if !times(b.shape, a.shape, size) {
			return fault(cohort.ErrCount, "want recv with the shape of send, preceded by a dimension of %d, the number of ranks, "+
				"or with its first dimension multiplied by it", size)
		}
	case backend.ReduceScatterBlock:
		if x.inPlace() {
			return divides(a, size)
		}
		if !times(a.shape, b.shape, size) {
			return fault(cohort.ErrCount, "want send with the shape of recv, preceded by a dimension of %d, the number of ranks, "+
				"or with its first dimension multiplied by it", size)
		}
	case backend.Alltoall:
		if a.n != b.n {
			return fault(cohort.ErrCount, "send has %d elements and recv %d", a.n, b.n)
		}
		return divides(a, size)
	}
	return nil
}

// divides returns an error unless a tensor has one equal block for each rank.
func divides[T cohort.Number](t *Tensor[T], size int) error {
	if t.n%size != 0 {
		return fault(cohort.ErrCount, "%d elements are not a multiple of %d, the number of ranks", t.n, size)
	}
	return nil
}

// times reports whether all is the shape of size tensors of shape one, stacked in a new first
// dimension or joined along the existing first one.
func times(all, one []int, size int) bool {
	switch len(all) - len(one) {
	case 1:
		return all[0] == size && slices.Equal(all[1:], one)
	case 0:
		return len(one) > 0 && all[0] == size*one[0] && slices.Equal(all[1:], one[1:])
	}
	return false
}

// blocks returns how many blocks each piece takes a part of, and their length in elements.
func (x *call[T]) blocks(size int) (blocks, n int) {
	switch x.coll {
	case backend.Allgather:
		if x.inPlace() {
			return size, x.recv.n / size
		}
		return size, x.send.n
	case backend.ReduceScatterBlock, backend.Alltoall:
		return size, x.send.n / size
	}
	return 1, x.send.n
}

// reduction reports whether a collective takes an operation.
func reduction(coll backend.Coll) bool {
	return coll == backend.Reduce || coll == backend.Allreduce || coll == backend.ReduceScatterBlock
}

// widened reports whether the numbers travel as float32.
func (x *call[T]) widened() bool {
	if !reduction(x.coll) || x.op.op != cohort.Sum && x.op.op != cohort.Prod {
		return false
	}
	kind := kindOf[T]()
	return kind == backend.Float16 || kind == backend.BFloat16
}

// plain reports whether one call of the root package on Go memory does the collective.
func (x *call[T]) plain(c *Comm) bool {
	if x.coll == backend.Barrier {
		return true
	}
	if x.send.dev != nil || x.writes(c) && x.recv.dev != nil || x.widened() || x.op.average {
		return false
	}
	blocks, n := x.blocks(c.Size())
	return n <= c.cfg.Chunk/(blocks*view.Size[T]())
}

// whole does a collective with one call of the root package. If the arguments are wrong it makes a
// call that is wrong for all ranks, so that the others learn of the error.
func (x *call[T]) whole(c *Comm, wrong error) error {
	if wrong != nil {
		_ = perform(c.coll, x.coll, nil, make([]T, 1), x.op.op, -1, nil)
		return wrong
	}
	var send, recv []T
	if x.send != nil && x.reads(c) {
		send = x.send.data
	}
	if x.recv != nil && x.writes(c) {
		recv = x.recv.data
	}
	return perform(c.coll, x.coll, send, recv, x.op.op, x.root, nil)
}

// perform calls the root package for one piece of a collective.
func (x *call[T]) perform(c *cohort.Comm, send, recv []byte, parts *parts) error {
	return perform(c, x.coll, view.Of[T](send), view.Of[T](recv), x.op.op, x.root, parts)
}

func (x *call[T]) clear() { *x = call[T]{} }

// parts says where the blocks of a piece are if they are not adjacent.
type parts struct{ counts, send, recv []int }

// perform calls the root package. A root of -1 with a recv of one element is wrong on all ranks.
func perform[T cohort.Number](c *cohort.Comm, coll backend.Coll, send, recv []T, op cohort.Op, root int, p *parts) error {
	switch coll {
	case backend.Barrier:
		return c.Barrier()
	case backend.Bcast:
		if recv == nil {
			recv = send
		}
		return cohort.Bcast(c, recv, root)
	case backend.Reduce:
		return cohort.Reduce(c, send, recv, op, root)
	case backend.Allreduce:
		return cohort.Allreduce(c, send, recv, op)
	case backend.ReduceScatterBlock:
		return cohort.ReduceScatterBlock(c, send, recv, op)
	case backend.Allgather:
		if p == nil {
			return cohort.Allgather(c, send, recv)
		}
		return cohort.Allgatherv(c, send, recv, p.counts, p.recv)
	case backend.Alltoall:
		if p == nil {
			return cohort.Alltoall(c, send, recv)
		}
		return cohort.Alltoallv(c, send, p.counts, p.send, recv, p.counts, p.recv)
	}
	return fault(cohort.ErrInternal, "unknown collective %v", coll)
}
