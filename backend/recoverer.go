package backend

// Recoverer is implemented by a Comm over a library that can go on after ranks
// have failed, as MPI libraries with ULFM (User Level Failure Mitigation) can.
//
// The loss of a rank ends the communicators that the rank is a member of, each as
// soon as one of its operations learns of the loss. These operations return
// ErrPeerLost naming the rank. The methods below also work on a communicator that
// has ended, is broken or has been revoked.
type Recoverer interface {
	Comm

	// Recovers returns nil if the library can go on after a loss. Otherwise it
	// returns a Fault of ErrNotSupported with the reason, and so do the methods
	// below.
	Recovers() error

	// Lost returns the world ranks of the members that this rank has found to be
	// lost, in ascending order, or nil.
	Lost() []int

	// Revoke breaks the communicator here with err, and ends the other ranks'
	// operations on it with ErrBroken, also those inside calls of the library. It
	// does not wait.
	Revoke(err error) error

	// Agree returns the bitwise and of the flags of all members that are not lost.
	// The result is the same on all of them, and all of them have acknowledged the
	// same losses. If it ends with ErrTimeout or ErrCanceled the agreement goes on
	// in the background, and the next call waits for its end.
	Agree(b *Bound, flag int) (int, error)

	// Shrink makes a communicator of the members that are not lost, in their order.
	// Its id is the largest that a member proposed and that all have claimed. Either
	// all members get the communicator or none does. ErrTimeout and ErrCanceled are
	// as for Agree.
	Shrink(b *Bound, ids Claimer) (c Comm, id uint32, err error)
}

// Claimer allocates the ids of communicators. Shrink may call it from another
// goroutine, one call at a time.
type Claimer interface {
	// Propose returns this rank's proposal. Attempts count from 0.
	Propose(attempt uint32) uint32
	// Claim takes an id and reports whether it was free.
	Claim(id uint32) bool
}
