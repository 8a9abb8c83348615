package cohort

// Agree returns the bitwise and of the flags of all participating ranks of c. The result is the same
// on all of them, even on a rank that fails right after Agree has returned. Agree works on a
// communicator that has lost ranks, is broken, or has been revoked. When it returns, every rank knows
// all failures that any of them knew before.
//
// Collective over the survivors: the ranks of c that are not lost, and have not closed c, call it. If
// a rank fails during the call, either all results include its flag or none does.
//
// Errors: [ErrPeerLost] if the others have declared this rank lost, or the job has been aborted;
// [ErrMismatch] on every rank if one calls Shrink; [ErrBusy]; [ErrRequest] if the last Shrink timed
// out; [ErrNotSupported] on mpi.
//
// Deadline: [ErrTimeout] names ranks that have not arrived. The agreement has not ended then, because
// other ranks may already use this rank's flag. Call Agree again to continue it; the flag of the first
// call counts.
func (c *Comm) Agree(flag int) (int, error) { return c.base().Agree(flag) }

// Shrink makes a communicator of the ranks of c that are not lost and have not closed c, in the same
// order. It works on a communicator that has lost ranks, is broken, or has been revoked. The new
// communicator supports all operations. The next failure breaks it, and then Shrink works on it in
// turn. If no rank is lost, it has the same ranks as c.
//
// Collective over the survivors: the ranks of c that are not lost, and have not closed c, call it.
//
// Errors: [ErrPeerLost] if the others have declared this rank lost, or the job has been aborted;
// [ErrMismatch] on every rank if one calls Agree; [ErrBusy]; [ErrRequest] if the last Agree timed out;
// [ErrNotSupported] on mpi. If one rank cannot make the communicator, no rank gets it.
//
// Deadline: [ErrTimeout] names ranks that have not arrived. Call Shrink again to continue it.
func (c *Comm) Shrink() (*Comm, error) {
	d, err := c.base().Shrink()
	return (*Comm)(d), err
}

// Lost returns, in ascending order, the ranks of c that this rank knows to be lost or to have left
// the job in good order. It is nil if there are none, and on mpi. Other ranks may get other results
// until the next Agree or Shrink.
func (c *Comm) Lost() []int { return c.base().Lost() }

// Revoke ends the operations of all ranks on c, pending and later ones, with [ErrBroken]. The error
// names the calling rank. A rank calls Revoke when it has learned of a failure, because other ranks
// may wait for an operation that the failure does not end. Agree and Shrink still work.
//
// Not collective: one rank is enough, and Revoke does not wait.
//
// Errors: [ErrClosed]; [ErrNotSupported] on mpi.
func (c *Comm) Revoke() error { return c.base().Revoke() }
