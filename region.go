package cohort

import (
	"fmt"
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
)

// SharedRegion is n elements in memory, with one copy per node, for tables that all ranks read. Each
// node fills its own copy: either the leader fills it, or each rank of the node fills a range. After
// Fence all ranks of the node can read it.
//
// The memory lies outside the Go heap. Every rank of a node first touches an equal share of it, so
// that it is spread over the NUMA domains in the same way as the ranks. Slices of a region are valid
// as long as those of a [SharedWindow].
//
// Where ranks share no memory (tcp), each rank has its own copy and is its own leader. A program is
// right on every backend if it fills the copy of each node: on the leader, or in ranges of
// Node().Size() parts.
type SharedRegion[T any] struct {
	s    *shared
	node *Comm
}

// NewSharedRegion makes a region of n elements, all zero.
//
// Collective: all ranks of c call it, with the same T and n.
//
// Errors: [ErrCount] for a negative n; [ErrType]; [ErrAlloc] on every rank if a node lacks the memory,
// with the size requested and the limit; [ErrMismatch] on every rank if the arguments differ.
//
// Deadline: [ErrTimeout]; c may be broken then.
func NewSharedRegion[T any](c *Comm, n int) (*SharedRegion[T], error) {
	const name = "NewSharedRegion"
	fail := func(err error) (*SharedRegion[T], error) {
		return nil, c.failed("newsharedregion", Undefined, Undefined, err)
	}
	typ, _, bad := asked[T](name, n)
	if err := c.sameCount(typ, n, bad); err != nil {
		return fail(err)
	}
	node, err := c.split(splitSharedCall, "region", c.core.bc.NodeOf(c.core.rank), 0, nil)
	if err != nil {
		return nil, err
	}
	s, err := allocate[T](node, name, n, true)
	if c.Size() > node.Size() { // either all nodes have a copy, or none
		if e := c.allWell(typ, err); err == nil {
			err = e
		}
	}
	if err != nil {
		s.close()
		node.Close()
		return fail(err)
	}
	return &SharedRegion[T]{s, node}, nil
}

// sameCount returns an error on every rank if the ranks request different numbers of elements. bad is
// an argument error of this rank, which sameCount returns.
func (c *Comm) sameCount(typ *backend.Datatype, n int, bad error) error {
	if err := c.take(); err != nil {
		return err
	}
	defer c.core.busy.Store(false)
	all, err := c.exchange(typ, strconv.Itoa(n), bad)
	if err != nil {
		return err
	}
	for r, text := range all {
		if text != all[0] {
			err := fault(ErrMismatch, fmt.Sprintf("rank 0 called %s with n = %s, rank %d with n = %s", typ.Name, all[0], r, text))
			c.core.bc.Break(err)
			return err
		}
	}
	return nil
}

// allWell returns an error on every rank if mine is not nil on one of them.
func (c *Comm) allWell(typ *backend.Datatype, mine error) error {
	if err := c.take(); err != nil {
		return err
	}
	defer c.core.busy.Store(false)
	all, err := c.exchange(typ, reason(mine), nil)
	if err != nil {
		return err
	}
	for r, text := range all {
		if text != "" {
			return fault(ErrAlloc, fmt.Sprintf("on the node of rank %d: %s", r, text))
		}
	}
	return nil
}

// Slice returns the whole region, for reading.
//
// Local.
//
// Errors: [ErrClosed].
func (r *SharedRegion[T]) Slice() ([]T, error) { return r.all("slice") }

// MutSlice returns the whole region, for writing, on the leader. On the other ranks of the node it
// returns an empty slice.
//
// Local.
//
// Errors: [ErrClosed].
func (r *SharedRegion[T]) MutSlice() ([]T, error) {
	all, err := r.all("mutslice")
	if err != nil {
		return nil, err
	}
	if !r.IsLeader() {
		return []T{}, nil
	}
	return all, nil
}

// Range returns the elements with indices lo to hi-1, for writing. The ranges that the ranks of a node
// write before a Fence must not overlap.
//
// Local.
//
// Errors: [ErrBuffer] for a range that is not inside the region; [ErrClosed].
func (r *SharedRegion[T]) Range(lo, hi int) ([]T, error) {
	all, err := r.all("range")
	if err != nil {
		return nil, err
	}
	if lo < 0 || hi < lo || hi > len(all) {
		return nil, r.s.failed("range", Undefined, fault(ErrBuffer, fmt.Sprintf("range %d to %d is outside the %d elements of the region", lo, hi, len(all))))
	}
	return all[lo:hi:hi], nil
}

func (r *SharedRegion[T]) all(op string) ([]T, error) {
	if r == nil || r.s == nil {
		return nil, (*shared)(nil).failed(op, Undefined, noWindow)
	}
	b, err := r.s.win.Part(0)
	if err != nil {
		return nil, r.s.failed(op, Undefined, err)
	}
	return elements[T](b), nil
}

// IsLeader reports whether the calling rank is rank 0 of Node.
//
// Local.
func (r *SharedRegion[T]) IsLeader() bool { return r.Node().Rank() == 0 }

// Node returns the communicator of the ranks that share this copy. It belongs to the region and is
// closed with it. It is nil for a nil region.
//
// Local.
func (r *SharedRegion[T]) Node() *Comm {
	if r == nil {
		return nil
	}
	return r.node
}

// Fence makes everything that ranks of the node wrote before it visible to all of them after it.
//
// Collective over Node: the ranks of a node call it. Nodes do not wait for each other.
//
// Errors: [ErrMismatch] on every rank of the node if one calls something else on Node; [ErrClosed].
//
// Deadline: [ErrTimeout], and Node is broken.
func (r *SharedRegion[T]) Fence() error {
	if r == nil {
		return (*shared)(nil).fence()
	}
	return r.s.fence()
}

// Close releases the region and Node on the calling rank. Slices of the region must not be used
// afterwards. Closing again, or closing a nil region, does nothing.
//
// Collective: all ranks call it. On mpi it waits for the ranks of the node; on other backends it does
// not wait.
func (r *SharedRegion[T]) Close() error {
	if r == nil || r.s == nil {
		return nil
	}
	err := r.s.close()
	if e := r.node.Close(); err == nil {
		err = e
	}
	return err
}
