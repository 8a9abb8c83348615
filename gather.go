package cohort

import "github.com/cohort-hpc/cohort/backend"

// Gather collects the send of all ranks in root's recv, one block per rank in rank order.
//
// Collective: all ranks of c call it with the same length of send, type and root.
//
// Buffers: on root, recv is as long as send times the number of ranks. Elsewhere recv is not used
// and may be nil. In place, root passes the same slice as send and recv, which already contains its
// own block; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Gather[T any](c *Comm, send, recv []T, root int) error {
	return c.run(data(c.begin(backend.Gather, root), send, recv))
}

// Igather is the nonblocking form of [Gather].
func Igather[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return c.start(data(newCall(backend.Gather, root), send, recv))
}

// GatherInit is the persistent form of [Gather].
func GatherInit[T any](c *Comm, send, recv []T, root int) (*Persistent, error) {
	return c.persist(data(newCall(backend.Gather, root), send, recv))
}

// Allgather collects the send of all ranks in every rank's recv, one block per rank in rank order.
//
// Collective: all ranks of c call it with the same length of send and the same type.
//
// Buffers: recv is as long as send times the number of ranks. In place, a rank passes the same slice
// as send and recv, which already contains its own block; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Allgather[T any](c *Comm, send, recv []T) error {
	return c.run(data(c.begin(backend.Allgather, -1), send, recv))
}

// Iallgather is the nonblocking form of [Allgather].
func Iallgather[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.start(data(newCall(backend.Allgather, -1), send, recv))
}

// AllgatherInit is the persistent form of [Allgather].
func AllgatherInit[T any](c *Comm, send, recv []T) (*Persistent, error) {
	return c.persist(data(newCall(backend.Allgather, -1), send, recv))
}

// Gatherv collects the send of all ranks, which may differ in length, in root's recv. The counts[r]
// elements of rank r are stored at displs[r]; with nil displs the blocks follow each other.
//
// Collective: all ranks of c call it with the same type and root.
//
// Buffers: on root, counts and displs have one entry per rank, the blocks lie inside recv without
// overlapping, and send has counts[root] elements. Elsewhere recv, counts and displs are not used
// and may be nil, and send is as long as root's counts demand. In place, root passes the same slice
// as send and recv, which already contains its own block; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Gatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) error {
	return c.run(recvParts(data(c.begin(backend.Gatherv, root), send, recv), counts, displs))
}

// Igatherv is the nonblocking form of [Gatherv].
func Igatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) (*Request, error) {
	return c.start(recvParts(data(newCall(backend.Gatherv, root), send, recv), counts, displs))
}

// GathervInit is the persistent form of [Gatherv].
func GathervInit[T any](c *Comm, send, recv []T, counts, displs []int, root int) (*Persistent, error) {
	return c.persist(recvParts(data(newCall(backend.Gatherv, root), send, recv), counts, displs))
}

// GathervAppend is [Gatherv] for a root that does not know the counts: the ranks exchange them first. On
// root it appends the elements of all ranks to dst, which may be nil, in rank order, and returns how many
// are from each rank. It allocates counts, and recv if dst has no room. Elsewhere it returns dst and nil.
//
// Collective: all ranks of c call it with the same type and root.
//
// Buffers: send may be nil or empty. It does not overlap the room after dst's elements. After an error the
// first result is dst, and that room may have been written.
//
// Errors, deadline: as for [Comm.Barrier]; [ErrRoot], [ErrBuffer] and [ErrType] for wrong arguments; [ErrAlloc] on root
// if the elements exceed the address space.
func GathervAppend[T any](c *Comm, dst, send []T, root int) (recv []T, counts []int, err error) {
	return runAppend(c, data(c.begin(backend.Gatherv, root), send, nil), dst)
}

// Allgatherv collects the send of all ranks, which may differ in length, in every rank's recv. The
// counts[r] elements of rank r are stored at displs[r]; with nil displs the blocks follow each other.
//
// Collective: all ranks of c call it with the same counts and type; displs may differ.
//
// Buffers: counts and displs have one entry per rank, the blocks lie inside recv without
// overlapping, and send has counts[rank] elements. In place, a rank passes the same slice as send
// and recv, which already contains its own block; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Allgatherv[T any](c *Comm, send, recv []T, counts, displs []int) error {
	return c.run(recvParts(data(c.begin(backend.Allgatherv, -1), send, recv), counts, displs))
}

// Iallgatherv is the nonblocking form of [Allgatherv].
func Iallgatherv[T any](c *Comm, send, recv []T, counts, displs []int) (*Request, error) {
	return c.start(recvParts(data(newCall(backend.Allgatherv, -1), send, recv), counts, displs))
}

// AllgathervInit is the persistent form of [Allgatherv].
func AllgathervInit[T any](c *Comm, send, recv []T, counts, displs []int) (*Persistent, error) {
	return c.persist(recvParts(data(newCall(backend.Allgatherv, -1), send, recv), counts, displs))
}

// AllgathervAppend is [Allgatherv] for ranks that do not know the counts: they exchange them first. It
// appends the elements of all ranks to dst, which may be nil, in rank order, and returns how many are from
// each rank. It allocates counts, and recv if dst has no room.
//
// Collective: all ranks of c call it with the same type.
//
// Buffers: as for [GathervAppend].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrBuffer] and [ErrType] for wrong arguments; [ErrAlloc] if the elements
// exceed the address space.
func AllgathervAppend[T any](c *Comm, dst, send []T) (recv []T, counts []int, err error) {
	return runAppend(c, data(c.begin(backend.Allgatherv, -1), send, nil), dst)
}
