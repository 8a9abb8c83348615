package cohort

import "github.com/cohort-hpc/cohort/backend"

// Alltoall sends one block from every rank to every rank: block j of rank i's send becomes block i
// of rank j's recv.
//
// Collective: all ranks of c call it with the same length and type.
//
// Buffers: send and recv are equally long, a multiple of the number of ranks. Passing the same slice
// as send and recv works in place; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Alltoall[T any](c *Comm, send, recv []T) error {
	return c.run(data(c.begin(backend.Alltoall, -1), send, recv))
}

// Ialltoall is the nonblocking form of [Alltoall].
func Ialltoall[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.start(data(newCall(backend.Alltoall, -1), send, recv))
}

// AlltoallInit is the persistent form of [Alltoall].
func AlltoallInit[T any](c *Comm, send, recv []T) (*Persistent, error) {
	return c.persist(data(newCall(backend.Alltoall, -1), send, recv))
}

// Alltoallv sends a block of any length from every rank to every rank. Rank i's scounts[j] elements
// at sdispls[j] are stored in rank j's recv at its rdispls[i]; rank j's rcounts[i] equals rank i's
// scounts[j]. With nil displacements the blocks follow each other.
//
// Collective: all ranks of c call it with the same type.
//
// Buffers: counts and displacements have one entry per rank, and the blocks lie inside their buffer.
// The blocks of recv do not overlap. In place, a rank passes the same slice as send and recv:
// rcounts and rdispls then describe the blocks sent too, and scounts and sdispls are not used and
// may be nil. Other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Alltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	return c.run(recvParts(sendParts(data(c.begin(backend.Alltoallv, -1), send, recv), scounts, sdispls), rcounts, rdispls))
}

// Ialltoallv is the nonblocking form of [Alltoallv].
func Ialltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (*Request, error) {
	return c.start(recvParts(sendParts(data(newCall(backend.Alltoallv, -1), send, recv), scounts, sdispls), rcounts, rdispls))
}

// AlltoallvInit is the persistent form of [Alltoallv].
func AlltoallvInit[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (*Persistent, error) {
	return c.persist(recvParts(sendParts(data(newCall(backend.Alltoallv, -1), send, recv), scounts, sdispls), rcounts, rdispls))
}

// AlltoallvAppend is [Alltoallv] for ranks that do not know how much they receive: they exchange the
// counts first. Of send, the first scounts[0] elements go to rank 0, the next scounts[1] to rank 1, and
// so on. It appends the elements received from all ranks to dst, which may be nil, in rank order, and
// returns how many are from each rank. It allocates rcounts, and recv if dst has no room.
//
// Collective: all ranks of c call it with the same type.
//
// Buffers: scounts has one entry per rank, and their sum is the length of send. dst is as for [GathervAppend].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrAlloc] if the
// elements received exceed the address space.
func AlltoallvAppend[T any](c *Comm, dst, send []T, scounts []int) (recv []T, rcounts []int, err error) {
	return runAppend(c, sendParts(data(c.begin(backend.Alltoallv, -1), send, nil), scounts, nil), dst)
}
