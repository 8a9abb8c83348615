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

// call is what a collective was given. Bcast's tensor is both send and recv.
type call[T cohort.Number] struct {
	coll       backend.Coll
	send, recv *Tensor[T]
	op         Op
	root       int
}

// blocking does a collective. What is in the processor's memory, and no longer than a piece, is one
// call of the root package, and nothing more.
func blocking[T cohort.Number](c *Comm, x call[T]) error {
	if c == nil || c.core == nil {
		return x.failed("", fault(cohort.ErrComm, "the communicator is nil"))
	}
	wrong := x.check(c)
	ticket, err := c.queue.take()
	switch {
	case err != nil:
	case wrong == nil && !x.plain(c):
		err = x.staged(c).mark().do(ticket)
	default:
		if err = c.turn(ticket); err == nil {
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
	ticket, err := c.queue.take()
	if err != nil {
		return nil, x.failed("i", err)
	}
	h, j := newHandle(), (*job)(nil)
	if wrong == nil && x.coll != backend.Barrier {
		j = x.staged(c).mark()
	}
	go func() {
		var err error
		if j != nil {
			err = j.do(ticket)
		} else if err = c.turn(ticket); err == nil {
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

// turn waits for an operation's turn, which it has unless there is an error.
func (c *Comm) turn(ticket uint64) error {
	if !c.queue.await(c.ctx, ticket, 0) {
		err := c.late()
		c.spoil(err)
		c.queue.leave(ticket)
		return err
	}
	if err := c.core.ended(); err != nil {
		c.queue.done()
		return err
	}
	return nil
}

// late is the error of an operation whose context ended before its turn came.
func (c *Comm) late() error {
	if c.ctx.Err() == context.DeadlineExceeded {
		return fault(cohort.ErrTimeout, "it waited for its tensor, or for operations before it")
	}
	return fault(cohort.ErrCanceled, "it waited for its tensor, or for operations before it: %v", context.Cause(c.ctx))
}

// ended returns why there are no collectives any more, nil while there are.
func (k *core) ended() error {
	if why := k.spoiled.Load(); why != nil {
		return fault(cohort.ErrBroken, "an operation before has failed on this rank: %v", *why)
	}
	return nil
}

// failed says what has failed, and on which tensors.
func (x *call[T]) failed(form string, err error) error {
	name := strings.ToLower(x.coll.String())
	if x.coll == backend.ReduceScatterBlock {
		name = "reducescatter"
	}
	switch {
	case x.coll == backend.Barrier:
	case x.send == x.recv || x.recv == nil:
		err = fmt.Errorf("%v: %w", x.send, err)
	case x.send == nil:
		err = fmt.Errorf("nil to %v: %w", x.recv, err)
	default:
		err = fmt.Errorf("%v to %v: %w", x.send, x.recv, err)
	}
	return failed(form+name, err)
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

// check returns an error for arguments that are wrong on this rank.
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
	a, b := x.send, x.recv
	overlap := a.dev == nil && b.dev == nil && view.Overlap(view.Bytes(a.data), view.Bytes(b.data))
	if a.dev != nil && a.dev == b.dev && a.n > 0 && b.n > 0 {
		overlap = int(a.at) < int(b.at)+b.size() && int(b.at) < int(a.at)+a.size()
	}
	if overlap {
		return fault(cohort.ErrBuffer, "the tensors share memory, and are not the same")
	}
	return nil
}

// fit returns an error if the shapes of send and recv do not fit each other.
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
			return fault(cohort.ErrCount, "want a tensor to receive in with %d, the number of ranks, in front of the other's shape, or "+
				"with that many times its first length", size)
		}
	case backend.ReduceScatterBlock:
		if x.inPlace() {
			return divides(a, size)
		}
		if !times(a.shape, b.shape, size) {
			return fault(cohort.ErrCount, "want a tensor to send with %d, the number of ranks, in front of the other's shape, or "+
				"with that many times its first length", size)
		}
	case backend.Alltoall:
		if a.n != b.n {
			return fault(cohort.ErrCount, "they have %d elements and %d", a.n, b.n)
		}
		return divides(a, size)
	}
	return nil
}

// divides returns an error unless a tensor has one block for each rank.
func divides[T cohort.Number](t *Tensor[T], size int) error {
	if t.n%size != 0 {
		return fault(cohort.ErrCount, "%d elements are no multiple of %d, the number of ranks", t.n, size)
	}
	return nil
}

// times reports whether a shape is that of so many tensors of another one, on top of each other or
// after each other.
func times(all, one []int, size int) bool {
	switch len(all) - len(one) {
	case 1:
		return all[0] == size && slices.Equal(all[1:], one)
	case 0:
		return len(one) > 0 && all[0] == size*one[0] && slices.Equal(all[1:], one[1:])
	}
	return false
}

// blocks returns the elements that each piece has a part of: how many of these blocks there are, and
// how long they are.
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

// reduction reports whether a collective has an operation.
func reduction(coll backend.Coll) bool {
	return coll == backend.Reduce || coll == backend.Allreduce || coll == backend.ReduceScatterBlock
}

// widened reports whether the numbers go as float32.
func (x *call[T]) widened() bool {
	if !reduction(x.coll) || x.op.op != cohort.Sum && x.op.op != cohort.Prod {
		return false
	}
	kind := kindOf[T]()
	return kind == backend.Float16 || kind == backend.BFloat16
}

// plain reports whether a call is one of the root package's, on memory of Go.
func (x *call[T]) plain(c *Comm) bool {
	if x.coll == backend.Barrier {
		return true
	}
	if x.send.dev != nil || x.writes(c) && x.recv.dev != nil || x.widened() {
		return false
	}
	blocks, n := x.blocks(c.Size())
	return n <= c.cfg.Chunk/(blocks*view.Size[T]())
}

// whole makes a call in one piece, of the memory as it is. An error that was found in its arguments is
// one for all ranks: the call is made all the same, so that it is known to be wrong.
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
	err := perform(c.coll, x.coll, send, recv, x.op.op, x.root, nil)
	if err == nil && x.op.average && recv != nil {
		if x.coll == backend.ReduceScatterBlock && x.inPlace() {
			recv = recv[:len(recv)/c.Size()]
		}
		divide(kindOf[T](), view.Bytes(recv), c.Size())
	}
	return err
}

// perform is call's part of a job: a piece.
func (x *call[T]) perform(c *cohort.Comm, send, recv []byte, parts *parts) error {
	return perform(c, x.coll, view.Of[T](send), view.Of[T](recv), x.op.op, x.root, parts)
}

// parts says where the blocks of a piece are that do not stand one after the other.
type parts struct{ counts, send, recv []int }

// perform calls the root package. A root of -1 and a recv of one element is wrong for all.
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
	return fault(cohort.ErrInternal, "no such collective: %v", coll)
}
