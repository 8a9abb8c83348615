package backend

// Sharing is implemented by a Comm whose ranks can share memory if all of them are
// on one node.
type Sharing interface {
	// Share allocates size bytes of memory, at least 1, that every rank of the
	// communicator can read and write. The memory is zero and no page of it has been
	// touched, so that the rank that touches a page first decides where it is placed.
	// All ranks are on one node and call Share with the same size at the same time,
	// while no other collective is under way.
	//
	// The ranks exchange what they need through publish; an error of publish ends
	// the attempt. An error may occur on one rank only: the layer above compares the
	// ranks' results, and closes the memory if one of them has none.
	Share(b *Bound, size int, publish Publish) (Memory, error)
	// Available returns how many bytes Share could allocate at most and what sets
	// this limit, or -1 if the backend sets none.
	Available() (free int64, from string)
}

// Publish passes a short text of every rank to all ranks, at most PublishSize
// bytes each, and returns the texts in the order of ranks. It is collective.
type Publish func(mine string) (all []string, err error)

// PublishSize is the largest length of a rank's text in bytes.
const PublishSize = 500

// Memory is one rank's view of memory that ranks share.
type Memory interface {
	// Bytes returns the memory. It begins at a page boundary.
	Bytes() []byte
	// Joint reports whether all ranks must close the memory together, because it belongs to a library.
	// The layer above then makes sure that all ranks are about to call Close.
	Joint() bool
	// Close releases this rank's view. It waits until b ends at most. Joint memory then stays mapped until all ranks
	// have gone on, or the job ends.
	Close(b *Bound) error
	// Abandon is called instead of Close if the other ranks may not close the memory. Joint memory then
	// stays allocated until the job ends.
	Abandon()
}
