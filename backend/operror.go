package backend

import (
	"strconv"
	"strings"
)

// Undefined stands for no color, no rank and no count (MPI-4.1 section 2.5.4).
const Undefined = -32766

// WorldName is the name of a job's first communicator.
const WorldName = "world"

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
	if e.Comm != "" && e.Comm != WorldName {
		s += " of " + e.Comm
	}
	receives := strings.Contains(e.Op, "recv") || strings.Contains(e.Op, "probe")
	switch {
	case e.Peer == Undefined:
	case e.Peer == AnySource && receives:
		s += ", peer any"
	case e.Peer == ProcNull:
		s += ", peer none"
	default:
		s += ", peer " + strconv.Itoa(e.Peer)
	}
	switch {
	case e.Tag == Undefined:
	case e.Tag == -1 && receives: // AnyTag of the root package
		s += ", tag any"
	default:
		s += ", tag " + strconv.Itoa(e.Tag)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }
