package backend

// Sharer is implemented by a Comm whose ranks, if all of them are on one node, can
// have memory in common.
type Sharer interface {
	// Share makes size bytes of memory, at least 1, that every rank of the
	// communicator reads and writes: zero, and not in use yet, so that who touches
	// a page first decides where it is. All ranks are on one node and call it with
	// the same size at the same time; no other collective is under way.
	//
	// What the ranks have to say to each other goes through tell, whose error ends
	// the attempt. An error may be of this rank alone: the layer above has all
	// ranks agree, and closes the memory where one of them has none.
	Share(b *Bound, size int, tell Tell) (Memory, error)
	// Spare returns how many bytes Share could give at most, as far as the backend
	// itself sets a limit, and what sets it; -1 if nothing does.
	Spare() (free int64, from string)
}

// Tell gives a short text of every rank to all of them, in their order, at most
// TellSize bytes each. It is collective.
type Tell func(mine string) (all []string, err error)

// TellSize is how long a rank's text may be.
const TellSize = 500

// Memory is one rank's view of memory that ranks share.
type Memory interface {
	// Bytes is the memory. It begins on a page.
	Bytes() []byte
	// Close gives this rank's view back.
	Close() error
}

// Collective is implemented by a Memory that the ranks close together, because it
// is the library's beneath: the layer above has made sure that all are about to.
type Collective interface {
	Memory
	// Abandon is for the case that they are not: the memory stays until the end of
	// the job.
	Abandon()
}
