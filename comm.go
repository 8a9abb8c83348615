package cohort

import (
	"context"
	"errors"
	"io"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Special ranks and tags (MPI-4.1 section 2.5.4).
const (
	AnySource = backend.AnySource // receive from any rank
	ProcNull  = backend.ProcNull  // a partner that does not exist: sends and receives do nothing
	AnyTag    = comm.AnyTag       // receive any tag
	Undefined = backend.Undefined // no color, no rank, no count
	MaxTag    = backend.MaxTag    // the largest tag; an MPI library may allow less (Caps.MaxTag)
)

// Comm is a communicator: a group of ranks that exchange messages. A message sent on one
// communicator is never received on another. Init and Run make the first communicator; Dup, Split
// and similar methods derive others from it.
//
// Many goroutines can use a Comm at once, as with MPI_THREAD_MULTIPLE. Point-to-point operations
// may run concurrently. Collectives run one at a time; a second concurrent one is [ErrBusy].
type Comm comm.Comm

// base returns what stands behind the communicator. It is nil for nil.
func (c *Comm) base() *comm.Comm { return (*comm.Comm)(c) }

// failed wraps the error of a local operation.
func (c *Comm) failed(op string, err error) error {
	return c.base().Failed(op, Undefined, Undefined, err)
}

// Rank returns the number of the calling rank in c, from 0 to Size-1. It is Undefined for a nil
// communicator.
func (c *Comm) Rank() int { return c.base().Rank() }

// Size returns the number of ranks of c. It is 0 for a nil communicator.
func (c *Comm) Size() int { return c.base().Size() }

// Name returns the communicator's name. It is "world" for the world. The name of a derived
// communicator is its parent's name followed by how it was made, such as "world.split2".
func (c *Comm) Name() string { return c.base().Name() }

// Backend returns the name of the backend that carries c: local, shm, tcp or mpi.
func (c *Comm) Backend() string { return c.Caps().Backend }

// Caps describes the capabilities of a communicator's backend.
type Caps = backend.Caps

// Caps returns the capabilities of the backend. A nil communicator has the zero Caps.
func (c *Comm) Caps() Caps { return c.base().Caps() }

// Devices returns what the backend can do with buffers in the memory of devices, for packages such as
// tensor. It is nil if the backend reads all buffers with the processor.
func (c *Comm) Devices() backend.Devices { return c.base().Devices() }

// Diagnostics returns what was found and set when the process joined the job, one fact per line. It
// also says what the rank does without, such as the files of the flight recorder. It may be nil.
func (c *Comm) Diagnostics() []string {
	return c.base().Diagnostics()
}

// WithContext returns a handle of the same communicator whose operations end when ctx does: with
// [ErrTimeout] at its deadline, with [ErrCanceled] if it is canceled. The context given to Init
// still applies too. A collective that ends in this way breaks the communicator. The other ranks
// then get the same error, or [ErrPeerLost] if the context given to Init was canceled. A send or
// receive ends as [Send] and [Recv] say.
//
// The handle need not be closed. Closing it closes the communicator.
func (c *Comm) WithContext(ctx context.Context) *Comm { return (*Comm)(c.base().WithContext(ctx)) }

// Abort ends the job. Every operation of every rank fails with an [ErrPeerLost] that names this
// rank and the code; on mpi the library ends the other processes instead. Then this process ends
// with the code as its status, which cohort run and mpiexec make the job's status. A code outside 1
// to 255 counts as 1. Deferred functions do not run. Under [Run], where ranks are goroutines, Abort
// ends no process and returns nil.
//
// Not collective: one rank is enough.
//
// Errors: [ErrComm], [ErrClosed]. Abort has no deadline.
func (c *Comm) Abort(code int) error { return c.base().Abort(code) }

// Close releases the communicator. Operations under way end with [ErrClosed], and so do later ones.
// On the mpi backend, an operation in a blocking function of the library goes on until it ends by
// itself. Closing the world closes all communicators made from it and leaves the job, so that this
// rank does not count as lost. Closing again, or closing a nil communicator, does nothing.
//
// Close waits up to 5 s for goroutines that make, close or use windows, or that close communicators
// made from the world. docs/windows.md and docs/mpi.md say what becomes of the memory.
//
// Not collective. Operations of other ranks that still need this rank fail afterwards.
//
// Errors: [ErrRequest] if no goroutine has waited for an operation, [ErrMismatch], and, from the
// world's Close, [ErrTimeout] and [ErrBroken]. docs/errors.md says when, under "What Close returns".
func (c *Comm) Close() error { return c.base().Close() }

// CloseWith ends a rank's part in the job. err is the error with which the rank's work has ended.
// If it is nil, CloseWith is Close.
//
// Otherwise the rank has failed. CloseWith closes the world, whichever communicator c is, and tells
// the other ranks: every pending and later operation of theirs ends with an [ErrPeerLost] that
// names this rank and carries the text of err. After Close alone they would not learn of err, and
// operations that do not need this rank would go on. On mpi the job ends a moment later.
//
// CloseWith returns err, joined with the error of Close.
//
// Not collective; errors: err, and those of Close.
func (c *Comm) CloseWith(err error) error {
	err = backend.Harmless(err)
	closed := c.base().CloseWith(cause(err))
	switch {
	case err == nil:
		return closed
	case closed == nil:
		return err
	}
	return errors.Join(err, closed)
}

// DumpFlight writes the last operations of the calling rank to w, in the format of the flight
// recorder's files. The command cohort report reads it.
//
// Not collective. It can be called at any time, during operations of other goroutines and after Close too.
//
// Errors: [ErrComm], [ErrBuffer] for a nil w, and those of w.
func (c *Comm) DumpFlight(w io.Writer) error { return c.base().DumpFlight(w) }

// Region is a part of a program, from a call of [Comm.Region] to End. End of the zero Region does nothing.
type Region struct {
	c      *comm.Comm
	ticket flight.Ticket
}

// Region begins a part of the program. The flight recorder keeps its name, beginning and end:
//
//	defer world.Region("assemble").End()
//
// The command cohort report --trace shows the regions of all ranks as a timeline, and cohort run
// --stats how much time they took. Regions may be nested, and goroutines may have different ones.
// The recorder keeps the last 1024 operations and regions of a rank, and the first 48 bytes of a
// name. Only the first 100 or so different names are kept.
//
// Not collective. It does not communicate, and takes about as long as reading the clock.
func (c *Comm) Region(name string) Region { return Region{c.base(), c.base().BeginRegion(name)} }

// End ends the region. A second End of it does nothing.
func (r Region) End() { r.c.EndRegion(r.ticket) }
