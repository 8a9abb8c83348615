package direct

import "github.com/cohort-hpc/cohort/backend"

// Space is a buffer of a rank that the others may read.
type Space uint8

// The buffers.
const (
	In   Space = iota // what Input returns for the rank's call
	Out               // the call's Recv
	Work              // what the rank passed to Sync last
)

// Peers is how a rank reaches the others of a collective. Ranks are those of the communicator and
// include the caller.
type Peers interface {
	// Read returns len(dst) bytes at off of a buffer: in place, where they stay until the next Sync, or
	// in dst.
	Read(rank int, from Space, off int, dst []byte) ([]byte, error)
	// Block returns where in a rank's In the bytes for another rank are, like Outgoing.
	Block(rank, to int) (off, n int, err error)
	// Over returns an error if the collective has to end early: its time is up, or its communicator
	// has ended. It is called each time that some megabytes have been read.
	Over() error
	// Sync waits for all ranks. Others may read work, if it is not nil, until the next Sync. If
	// some ranks pass an error, Sync returns that of the lowest such rank on every rank. Any other error ends
	// the collective.
	Sync(work []byte, bad error) error
	// Fails ends the communicator with the error of the operation's function. If exits, the function has ended the
	// goroutine, and Fails also does what the caller does after Run or Combine, which do not return.
	Fails(err error, exits bool)
}

// Input returns the part of a rank's buffers that the other ranks read: its contribution, nil if it
// has none.
func Input(c *backend.Call, rank int) []byte {
	switch c.Coll {
	case backend.Barrier:
		return nil
	case backend.Bcast:
		if rank != c.Root {
			return nil
		}
		return c.Recv
	case backend.Scatter, backend.Scatterv:
		if rank != c.Root {
			return nil
		}
		return c.Send
	}
	if !c.InPlace {
		return c.Send
	}
	switch c.Coll {
	case backend.Gather, backend.Allgather:
		n := c.Count * c.Type.Size
		return c.Recv[rank*n : rank*n+n]
	case backend.Gatherv, backend.Allgatherv:
		off, n := c.RecvDispls[rank]*c.Type.Size, c.RecvCounts[rank]*c.Type.Size
		if n == 0 {
			return nil // the displacement of an empty block has no meaning
		}
		return c.Recv[off : off+n]
	}
	return c.Recv
}

// Outgoing returns where in Input the bytes for another rank are, for Gatherv, Alltoallv, and Scatterv's
// root. For Gatherv these are all.
func Outgoing(c *backend.Call, rank, to int) (off, n int) {
	counts, displs := c.SendCounts, c.SendDispls
	switch {
	case c.Coll == backend.Gatherv:
		return 0, len(Input(c, rank))
	case c.InPlace && c.Coll == backend.Alltoallv:
		counts, displs = c.RecvCounts, c.RecvDispls
	}
	return displs[to] * c.Type.Size, counts[to] * c.Type.Size
}

// Incoming returns where in Recv the block from a rank goes, for Gather, Allgather, Alltoall and their forms with counts.
func Incoming(c *backend.Call, rank int) (off, n int) {
	switch c.Coll {
	case backend.Gather, backend.Allgather, backend.Alltoall:
		n = c.Count * c.Type.Size
		return rank * n, n
	}
	return c.RecvDispls[rank] * c.Type.Size, c.RecvCounts[rank] * c.Type.Size
}

// FitsSlot reports whether the inputs of all ranks are at most limit bytes each. It depends only on
// what the calls of all ranks have in common.
func FitsSlot(c *backend.Call, size, limit int) bool {
	blocks := 1
	switch c.Coll {
	case backend.Barrier:
		return true
	case backend.Gatherv, backend.Scatterv, backend.Alltoallv,
		backend.NeighborAllgather, backend.NeighborAllgatherv, backend.NeighborAlltoall, backend.NeighborAlltoallv:
		return false
	case backend.Scatter, backend.Alltoall, backend.ReduceScatterBlock:
		blocks = size
	}
	return c.Count <= limit && blocks*c.Count*c.Type.Size <= limit
}
