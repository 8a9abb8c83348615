package backend

// Survivor is implemented by a Comm of a job that can go on after it has lost ranks.
//
// A rank is lost when it has ended without closing its first communicator, or is taken to have
// ended: silent for longer than the heartbeat allows, or named by Declare. A loss ends every
// communicator of the job that does not excuse it, also those that the rank is not a member of: their
// pending and later operations return ErrPeerLost that names it. It cannot be taken back: what a lost
// rank still sends is dropped, and a rank that others have declared lost finds its own operations
// ended as well. Abort, and what a rank finds that cannot be right, end all communicators for good.
type Survivor interface {
	Comm

	// Lost returns the world ranks that are known here to be lost, in ascending order; nil if none are.
	// Who is lost is in it before any operation ends because of that.
	Lost() []int

	// Left returns the world ranks that are known here to have left in good order, which ends no
	// communicator, in ascending order; nil if none are.
	Left() []int

	// Declare makes a rank of the job, by its world rank, lost from now on: here, and on every rank
	// that can be told. Its links are closed. Declaring a lost rank again does nothing.
	Declare(rank int, why error)

	// Shelter makes a communicator of the same ranks in the same order in which ranks agree on what
	// to do after a loss: neither losses nor Break of this communicator end it. An operation with a
	// rank that is lost, or that has closed this communicator, ends with ErrPeerLost, a receive not
	// before everything that has come from the rank has been received; operations with others go on.
	// What ends all communicators ends it too, with Broken saying why; so does its own rank's being
	// declared lost. It carries messages from a named source only, no collectives and no AnySource. It
	// exchanges no messages; what another member sends before this one has made its own waits.
	Shelter(id uint32) (Comm, error)

	// Excuse is Derive on a communicator that may be ended or broken, for one that excuses what its
	// parent excuses, and the losses of the given world ranks besides.
	Excuse(members []int, id uint32, lost []int) (Comm, error)
}
