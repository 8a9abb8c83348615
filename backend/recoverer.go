package backend

// Recoverer is implemented by a Comm over a library that may be able to go on after a loss by itself, as
// MPI libraries with ULFM (User Level Failure Mitigation) are.
//
// A loss ends the communicators that the lost rank is a member of, each when its operations learn of it:
// they return ErrPeerLost that names the rank. What says otherwise below works on a communicator that is
// ended, broken or revoked.
type Recoverer interface {
	Comm

	// Recovers returns nil, or why the library does not go on after a loss: a Fault of ErrNotSupported,
	// which the methods below would return, too.
	Recovers() error

	// Lost returns the world ranks of the members that are known here to be lost, in ascending order;
	// nil if none are.
	Lost() []int

	// Revoke breaks the communicator with err here, and ends what other ranks do on it, also in calls
	// of the library's, with ErrBroken. It does not wait.
	Revoke(err error) error

	// Agree returns the bitwise and of the flags of the members that are not lost, the same on all of them.
	// They have acknowledged the same losses. After ErrTimeout or ErrCanceled it goes on, and the next
	// call waits for its end.
	Agree(b *Bound, flag int) (int, error)

	// Shrink makes a communicator of the members that are not lost, in their order, with an id that all
	// of them have claimed: the largest that any proposed. All get it, or none. It ends early as Agree does.
	Shrink(b *Bound, ids Claimer) (c Comm, id uint32, err error)
}

// Claimer hands out the ids of communicators. Shrink may call it from another goroutine, one call at a time.
type Claimer interface {
	// Propose returns this rank's proposal; attempts are counted from 0.
	Propose(attempt uint32) uint32
	// Claim takes an id, and reports whether it was free.
	Claim(id uint32) bool
}
