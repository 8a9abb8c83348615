package cohort

import (
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
)

// Every failure wraps one of these sentinels, for errors.Is. docs/errors.md explains what each means
// and what to do about it.
var (
	ErrBuffer       = backend.ErrBuffer       // a nil buffer where data is needed, or buffers that overlap
	ErrCount        = backend.ErrCount        // a length, count or number of ranks that does not fit
	ErrType         = backend.ErrType         // an element type that holds pointers or has no size
	ErrTag          = backend.ErrTag          // a negative tag, or one above 2^31-1
	ErrRank         = backend.ErrRank         // a rank outside the communicator
	ErrRoot         = backend.ErrRoot         // a root outside the communicator
	ErrOp           = backend.ErrOp           // a reduction that does not apply to the element type
	ErrTruncate     = backend.ErrTruncate     // a message longer than the buffer it was received into
	ErrComm         = backend.ErrComm         // a nil communicator
	ErrClosed       = backend.ErrClosed       // use after Close
	ErrBusy         = backend.ErrBusy         // two collectives at once on one communicator
	ErrRequest      = backend.ErrRequest      // a request in the wrong state
	ErrWin          = backend.ErrWin          // an invalid window
	ErrAlloc        = backend.ErrAlloc        // memory that cannot be allocated
	ErrInit         = backend.ErrInit         // the job cannot be joined
	ErrNotSupported = backend.ErrNotSupported // not available on this backend or system
	ErrTimeout      = backend.ErrTimeout      // a deadline has passed
	ErrCanceled     = backend.ErrCanceled     // a context was canceled, or a request was
	ErrPeerLost     = backend.ErrPeerLost     // a rank died, failed or aborted the job
	ErrMismatch     = backend.ErrMismatch     // the ranks' calls of one collective differ
	ErrBroken       = backend.ErrBroken       // an earlier collective failed on this communicator
	ErrInternal     = backend.ErrInternal     // a defect of cohort
)

// OpError names the operation and the rank that failed. Every error of an operation on a communicator
// is an OpError.
type OpError struct {
	Op   string // the operation in lower case: "allreduce", "isend"
	Comm string // the communicator's name
	Rank int    // the rank that got the error
	Peer int    // the other rank of a point-to-point operation, the root of a rooted one; else Undefined
	Tag  int    // the tag of a point-to-point operation; else Undefined
	Err  error  // the cause; it wraps a sentinel
}

// Error returns the operation first and the facts last, as in
// "recv: rank 0, peer 2, tag 7: message truncated: …".
func (e *OpError) Error() string {
	s := e.Op + ": "
	if e.Rank == Undefined { // there is no communicator
		return s + e.Err.Error()
	}
	s += "rank " + strconv.Itoa(e.Rank)
	if e.Comm != "" && e.Comm != worldName {
		s += " of " + e.Comm
	}
	if e.Peer != Undefined {
		s += ", peer " + rankName(e.Peer)
	}
	if e.Tag != Undefined {
		s += ", tag " + tagName(e.Tag)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

func rankName(rank int) string {
	switch rank {
	case AnySource:
		return "any"
	case ProcNull:
		return "none"
	}
	return strconv.Itoa(rank)
}

func tagName(tag int) string {
	if tag == AnyTag {
		return "any"
	}
	return strconv.Itoa(tag)
}

// MPIError is an error of an MPI library. On the mpi backend an [OpError] may wrap one. errors.Is
// matches it with the sentinel of its class.
type MPIError = backend.MPIError

// fault returns an error that wraps a sentinel and gives the facts.
func fault(sentinel error, text string) error {
	return &backend.Fault{Sentinel: sentinel, Text: text}
}
