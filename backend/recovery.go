package backend

// Recovery is implemented by a Comm of a job that can go on after ranks have failed.
//
// A rank is lost when it has ended without closing its first communicator, when it has been silent for
// longer than the heartbeat allows, or when Comm.Declare has named it. A loss is final: messages of a lost
// rank are dropped, and a rank that others have declared lost finds its own operations ended as well.
//
// A loss ends every communicator that it concerns and that has not acknowledged it. Their pending and
// later operations return ErrPeerLost naming the rank. It concerns all communicators of the job. The
// methods below also work on a communicator that has ended, is broken or has been revoked. After Abort
// they return its error.
//
// Agree and Shrink come one at a time. All members that are not lost and have not closed the
// communicator call them in the same order. If a call ends with ErrTimeout or ErrCanceled it is not
// over, and the next call of the same method continues it.
type Recovery interface {
	// Lost returns the world ranks that this rank has found to be lost or has seen leave in good order,
	// in ascending order, or nil. It has a lost rank before any operation ends because of the loss.
	Lost() []int

	// Revoke breaks the communicator here with err, and ends the other ranks' operations on it with
	// ErrBroken. It does not wait.
	Revoke(err error) error

	// Agree returns the bitwise and of the flags of all members that take part. The result is the same
	// on all of them, and all of them have learned of the same losses.
	Agree(b *Bound, flag int) (int, error)

	// Shrink makes a communicator of the members that take part, in their order. It acknowledges the
	// losses that the members know. Its id is the largest that a member proposed and that all have
	// claimed. Either all members that survive get the communicator or none does. If a Shrink has timed
	// out, Close of the old communicator closes the new one too.
	Shrink(b *Bound, ids Claimer) (c Comm, id uint32, err error)
}

// FailureReporter is implemented by a Recovery that tells lost ranks from those that left in good order.
type FailureReporter interface {
	// Failed returns the world ranks that this rank has found to be lost, in ascending order, or nil.
	Failed() []int
}

// Claimer allocates the ids of communicators.
type Claimer interface {
	// Propose returns this rank's proposal. Attempts count from 0. salt is equal on all members; it
	// makes communicators that collide once propose different ids the next time.
	Propose(attempt, salt uint32) uint32
	// Claim takes an id and reports whether it was free. An error means that there are no more ids; it
	// is the same on all members.
	Claim(id uint32) (bool, error)
}
