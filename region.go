package cohort

import (
	"fmt"
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
)

// SharedRegion is n elements of which every node has one copy, whatever the number
// of its ranks: tables that all ranks read. The ranks of a node fill its copy
// together, each a range of it, or one of them does, the leader; each node fills
// its own. After Fence all of them read it.
//
// The memory lies outside the Go heap; every rank of a node touches an equal share
// of it first, so that it is spread over the NUMA domains as the ranks are.
// What is said of slices of a [SharedWindow] holds for those of a region.
//
// Where ranks have no memory in common (tcp) each is a node of its own, with a
// copy of its own, and the leader of it. A program is right on every backend if
// what it writes it writes on each node: on the leader, or in ranges of
// Node().Size() parts.
type SharedRegion[T any] struct {
	s    *shared
	node *Comm
}

// NewSharedRegion makes a region of n elements, all zero.
//
// Collective: all ranks of c call it, with the same T and n.
//
// Errors: [ErrCount] for a negative n, [ErrType]; [ErrAlloc] on every rank if a node
// has not the memory, with the size asked for and what limits it; [ErrMismatch] on
// every rank if the arguments differ.
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
	if c.Size() > node.Size() { // all nodes have theirs, or none
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

// sameCount returns an error, on every rank, if the ranks ask for different numbers
// of elements; or bad, an argument error of this rank.
func (c *Comm) sameCount(typ *backend.Datatype, n int, bad error) error {
	if err := c.take(); err != nil {
		return err
	}
	defer c.core.busy.Store(false)
	all, err := c.tell(typ, strconv.Itoa(n), bad)
	if err != nil {
		return err
	}
	for r, text := range all {
		if text != all[0] {
			err := fault(ErrMismatch, fmt.Sprintf("rank 0 called %s with %s elements, rank %d with %s", typ.Name, all[0], r, text))
			c.core.bc.Break(err)
			return err
		}
	}
	return nil
}

// allWell returns an error if that of some rank is not nil.
func (c *Comm) allWell(typ *backend.Datatype, mine error) error {
	if err := c.take(); err != nil {
		return err
	}
	defer c.core.busy.Store(false)
	all, err := c.tell(typ, reason(mine), nil)
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

// Slice returns all of the region, to read.
//
// Errors: [ErrClosed].
func (r *SharedRegion[T]) Slice() ([]T, error) { return r.all("slice") }

// MutSlice returns all of the region, to write, on the leader, and nothing on the
// other ranks of the node.
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

// Range returns the elements from lo to before hi, to write. What the ranks of a
// node write before a Fence must not overlap.
//
// Errors: [ErrBuffer] for a range that is not inside the region, [ErrClosed].
func (r *SharedRegion[T]) Range(lo, hi int) ([]T, error) {
	all, err := r.all("range")
	if err != nil {
		return nil, err
	}
	if lo < 0 || hi < lo || hi > len(all) {
		return nil, r.s.failed("range", Undefined, fault(ErrBuffer, fmt.Sprintf("%d to %d of %d elements", lo, hi, len(all))))
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

// IsLeader reports whether the calling rank is rank 0 of its node.
func (r *SharedRegion[T]) IsLeader() bool { return r.Node().Rank() == 0 }

// Node returns the communicator of the ranks that have this copy in common. It
// belongs to the region and is closed with it.
func (r *SharedRegion[T]) Node() *Comm {
	if r == nil {
		return nil
	}
	return r.node
}

// Fence makes all that ranks of the node have written before visible to all of
// them after it.
//
// Collective over Node: the ranks of a node call it; nodes do not wait for each
// other.
//
// Errors: [ErrMismatch] on every rank of the node if one calls something else on
// Node; [ErrClosed].
func (r *SharedRegion[T]) Fence() error {
	if r == nil {
		return (*shared)(nil).fence()
	}
	return r.s.fence()
}

// Close gives the rank's view of the region back, and Node. Closing twice, or a nil
// region, does nothing.
//
// Collective: all ranks call it. On mpi it waits for those of the node, elsewhere
// not.
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
