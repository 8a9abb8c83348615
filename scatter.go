package cohort

import "github.com/cohort-hpc/cohort/backend"

// Scatter distributes root's send in equal blocks: rank r receives block r.
//
// Collective: all ranks of c call it with the same length of recv, type and root.
//
// Buffers: on root, send is as long as recv times the number of ranks. Elsewhere send is not used
// and may be nil. In place, root passes the same slice as send and recv, and its own block stays
// where it is; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Scatter[T any](c *Comm, send, recv []T, root int) error {
	return c.run(data(c.begin(backend.Scatter, root), send, recv))
}

// Iscatter is the nonblocking form of [Scatter].
func Iscatter[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return c.start(data(newCall(backend.Scatter, root), send, recv))
}

// ScatterInit is the persistent form of [Scatter].
func ScatterInit[T any](c *Comm, send, recv []T, root int) (*Persistent, error) {
	return c.persist(data(newCall(backend.Scatter, root), send, recv))
}

// Scatterv distributes root's send in blocks that may differ in length: rank r receives the
// counts[r] elements at displs[r]. With nil displs the blocks follow each other.
//
// Collective: all ranks of c call it with the same type and root.
//
// Buffers: on root, counts and displs have one entry per rank, the blocks lie inside send, and recv
// has counts[root] elements; blocks may overlap. Elsewhere send, counts and displs are not used and
// may be nil, and recv is as long as root's counts demand. In place, root passes the same slice as
// send and recv, and its own block stays where it is; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Scatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	return c.run(sendParts(data(c.begin(backend.Scatterv, root), send, recv), counts, displs))
}

// Iscatterv is the nonblocking form of [Scatterv].
func Iscatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) (*Request, error) {
	return c.start(sendParts(data(newCall(backend.Scatterv, root), send, recv), counts, displs))
}

// ScattervInit is the persistent form of [Scatterv].
func ScattervInit[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) (*Persistent, error) {
	return c.persist(sendParts(data(newCall(backend.Scatterv, root), send, recv), counts, displs))
}

// Block returns which of n elements belong to a rank when size ranks divide them evenly, in rank order: those from
// lo up to, but without, hi. The lengths of two blocks differ by 1 at most. A rank outside 0 to size-1 has none.
func Block(n, size, rank int) (lo, hi int) {
	if n < 0 || rank < 0 || rank >= size {
		return 0, 0
	}
	each, rest := n/size, n%size // rank*n may exceed an int
	return rank*each + rank*rest/size, (rank+1)*each + (rank+1)*rest/size
}
