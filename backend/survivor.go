package backend

// Survivor is implemented by a Comm of a job that can go on after ranks have
// failed.
//
// A rank is lost when it has ended without closing its first communicator, when
// it has been silent for longer than the heartbeat allows, or when Declare has
// named it. A loss ends every communicator of the job that has not acknowledged
// it, also those that the lost rank is not a member of: their pending and later
// operations return ErrPeerLost naming the rank. A loss is final. Messages of a
// lost rank are dropped, and a rank that others have declared lost finds its own
// operations ended as well. Abort, and a violation of the protocol, end all
// communicators for good.
type Survivor interface {
	Comm

	// Lost returns the world ranks that this rank has found to be lost, in ascending
	// order, or nil. It has a rank before any operation ends because of its loss.
	Lost() []int

	// Left returns the world ranks that this rank has seen leave in good order, in
	// ascending order, or nil. Leaving ends no communicator.
	Left() []int

	// Declare makes a rank of the job lost, by its world rank: here, and on every
	// rank that can be reached. Its links are closed. Declaring a lost rank again
	// does nothing.
	Declare(rank int, why error)

	// Control makes a control communicator: the same ranks in the same order, over
	// which they agree on how to go on after a loss. Neither losses nor Break of this
	// communicator end it.
	//
	// An operation with a rank that is lost, or that has closed the control
	// communicator, ends with ErrPeerLost; a receive does so only after everything
	// that arrived from the rank has been received. Operations with other ranks go
	// on. What ends all communicators also ends this one, with Broken giving the
	// reason; so does the declaration that its own rank is lost.
	//
	// It carries messages from a named source only: no collectives and no AnySource.
	// Control exchanges no messages. A message from a member that has made its own
	// already waits until this one is made.
	Control(id uint32) (Comm, error)

	// Acknowledge does what Derive does, on a communicator that may have ended or be
	// broken. The new communicator has acknowledged the losses that its parent has,
	// and those of the given world ranks besides.
	Acknowledge(members []int, id uint32, lost []int) (Comm, error)
}
