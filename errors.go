package cohort

import "github.com/cohort-hpc/cohort/backend"

// Every failure wraps one of these sentinels, for errors.Is. docs/errors.md explains what each means
// and what to do about it.
var (
	ErrBuffer       = backend.ErrBuffer       // a nil buffer where data is needed, or buffers that overlap
	ErrCount        = backend.ErrCount        // a length, count or number of ranks that does not fit
	ErrType         = backend.ErrType         // an element type with pointers or no size; a message of another type
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
type OpError = backend.OpError

// MPIError is an error of an MPI library. On the mpi backend an [OpError] may wrap one. errors.Is
// matches it with the sentinel of its class.
type MPIError = backend.MPIError

// fault returns an error that wraps a sentinel and gives the facts.
func fault(sentinel error, text string) error {
	return &backend.Fault{Sentinel: sentinel, Text: text}
}
