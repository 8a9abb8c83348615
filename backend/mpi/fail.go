//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// fault returns the error of a code. The library may still use the buffers of a call that was ended by force.
func (c *comm) fault(code libmpi.Code, bufs ...[]byte) error {
	if code == libmpi.Ended {
		c.p.keep(bufs...)
		return c.usable()
	}
	return libmpi.Error(code)
}

// looked handles the code of a call that asked the library what has come. If the call has failed, the communicator is
// broken: what has come would not be found.
func (c *comm) looked(code libmpi.Code) {
	if code > 0 { // with the shim's codes it was not made
		c.Break(libmpi.Error(code))
	}
}

// unmade returns the error of a call that should have made a communicator. A library that has no more of them reports
// an error without a meaning: MPICH's class MPI_ERR_OTHER, Open MPI's MPI_ERR_INTERN.
func (c *comm) unmade(code libmpi.Code) error {
	err := c.fault(code)
	if m, ok := err.(*backend.MPIError); ok && m.Unwrap() == backend.ErrInternal {
		m.Sentinel = backend.ErrAlloc
		m.Text = "the library cannot make a communicator; it may have too many, of which each of cohort takes two: " + m.Text
	}
	return err
}

// noticeSize is the maximum length of a notice: a sentinel's code and a text.
const noticeSize = 512

// Break makes the communicator unusable here and notifies the other ranks. They receive the notice
// when they wait with a limit, for a request or for a schedule, but not in a blocking call of the
// library.
func (c *comm) Break(err error) {
	if !c.breaks(err) {
		return
	}
	if !c.reenter() {
		return
	}
	defer c.leave()
	n := c.broken.Load().Encode(noticeSize)
	for r := range c.size {
		if r != c.rank {
			c.p.engine.tell(c, n, r, c.p.tags.notice())
		}
	}
}

// breaks marks the communicator as broken and ends what is pending. It returns false if the
// communicator was broken or closed before.
func (c *comm) breaks(err error) bool {
	f := asFault(err)
	if c.gate.IsShut() || !c.broken.CompareAndSwap(nil, f) {
		return false
	}
	c.drop(&backend.Broken{Cause: f})
	return true
}

func asFault(err error) *backend.Fault {
	if b, ok := err.(*backend.Broken); ok {
		err = b.Cause
	}
	return backend.AsFault(err)
}

// readNotice checks for a notice of another rank.
func (c *comm) readNotice() {
	if c.size == 1 || c.enter() != nil {
		return
	}
	defer c.leave()
	if !c.reading.TryLock() { // if two goroutines saw one notice, the slower would wait without end
		return
	}
	defer c.reading.Unlock()
	if m, _, ok := c.receiveControl(c.p.tags.notice()); ok && len(m) > 0 {
		c.breaks(backend.DecodeFault(m))
	}
}

// Broken returns what the communicator was broken with.
func (c *comm) Broken() error {
	if c.broken.Load() == nil {
		c.readNotice()
	}
	if f := c.broken.Load(); f != nil {
		return f
	}
	return nil
}

// Wake does nothing: a waiter with a limit polls.
func (c *comm) Wake() {}

// Abort ends the job, this process included.
func (c *comm) Abort(code int) error {
	if code < 1 || code > 255 {
		code = 1 // the range of an exit status
	}
	if c.p.engine.closing.Load() {
		return nil // the caller ends the process, and so the job
	}
	if rc := libmpi.Abort(code); rc != 0 {
		return c.fault(rc)
	}
	return nil
}
