package cohort

import (
	"fmt"

	"github.com/cohort-hpc/cohort/internal/comm"
)

// SharedRegion is n elements in memory, with one copy per node, for tables that all ranks read. Each
// node fills its own copy: either the leader fills it, or each rank of the node fills a range. After
// Fence all ranks of the node can read it.
//
// On Linux the memory lies outside the Go heap. Every rank of a node first touches an equal share
// of it, which spreads the memory over the NUMA domains like the ranks. Slices of a region are
// valid as long as those of a [Window].
//
// Where ranks cannot share memory, each rank has its own copy and is its own leader. A program is
// right on every backend if the leader fills the copy of its node, or if each rank of Node fills
// its part.
type SharedRegion[T any] struct {
	w    *comm.Window
	node *Comm
}

// NewSharedRegion makes a region of n elements, all zero.
//
// Collective: all ranks of c call it, with the same T and n.
//
// Errors: [ErrCount] for a negative n; [ErrType]; [ErrAlloc] on every rank if a node lacks the memory,
// with the size requested and the limit; [ErrMismatch] on every rank if the arguments differ.
//
// Deadline: [ErrTimeout]; c may be broken then. The context of c also applies to the region.
func NewSharedRegion[T any](c *Comm, n int) (*SharedRegion[T], error) {
	typ, err := typeFor[T]()
	w, node, err := c.base().NewRegion(comm.NewAllocation("NewSharedRegion", typ, n, comm.Region, err))
	if err != nil {
		return nil, err
	}
	return &SharedRegion[T]{w, (*Comm)(node)}, nil
}

// Slice returns the whole region, for reading.
//
// Not collective; errors: [ErrClosed].
func (r *SharedRegion[T]) Slice() ([]T, error) { return r.all("slice") }

// MutSlice returns the whole region, for writing, on the leader. On the other ranks of the node it
// returns an empty slice.
//
// Not collective; errors: [ErrClosed].
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
// Not collective; errors: [ErrBuffer] for a range that is not inside the region; [ErrClosed].
func (r *SharedRegion[T]) Range(lo, hi int) ([]T, error) {
	all, err := r.all("range")
	if err != nil {
		return nil, err
	}
	if lo < 0 || hi < lo || hi > len(all) {
		return nil, r.w.Failed("range", Undefined, fault(ErrBuffer, fmt.Sprintf("range %d to %d is outside the %d elements of the region", lo, hi, len(all))))
	}
	return all[lo:hi:hi], nil
}

func (r *SharedRegion[T]) all(op string) ([]T, error) { return elements[T](r.base().Part(op, 0)) }

// base returns the window of the region, which has all of it in part 0. It is nil for nil.
func (r *SharedRegion[T]) base() *comm.Window {
	if r == nil {
		return nil
	}
	return r.w
}

// IsLeader reports whether the calling rank is rank 0 of Node.
func (r *SharedRegion[T]) IsLeader() bool { return r.Node().Rank() == 0 }

// Node returns the communicator of the ranks that share this copy. It belongs to the region and is
// closed with it. It is nil for a nil region.
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
func (r *SharedRegion[T]) Fence() error { return r.base().Fence() }

// Close releases the region and Node on the calling rank. Slices of the region must not be used
// afterwards. Closing again, or closing a nil region, does nothing.
//
// Collective: all ranks call it. On mpi it waits for the ranks of the node; on other backends it does
// not wait.
//
// Errors: those of closing a [Window].
//
// Deadline: as for [Window.Close].
func (r *SharedRegion[T]) Close() error {
	if r == nil || r.w == nil {
		return nil
	}
	err := r.w.Close()
	if e := r.node.Close(); err == nil {
		err = e
	}
	return err
}
