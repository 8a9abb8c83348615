package file

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/values"
)

// Error is a failure of an operation on a file. A collective operation that failed on several ranks returns one Error
// for each of them, joined, in the order of the ranks.
type Error struct {
	Op   string // the operation in lower case: "writeatall"
	Path string // the name given to Open
	Rank int    // the rank on which the error occurred

	// Some of the Len bytes from Off on may not have been written or read. The operation has moved all its other
	// bytes, unless another Error names them. Len is 0 if the error is not about bytes.
	Off, Len int64

	Err error
}

// Error returns the operation first, as in "writeatall: out.bin: rank 2: bytes 4096 to 8191: no space left on device".
func (e *Error) Error() string {
	where := ""
	if e.Len > 0 {
		where = fmt.Sprintf("bytes %d to %d: ", e.Off, e.Off+e.Len-1)
	}
	if e.Rank >= 0 {
		where = fmt.Sprintf("%s: rank %d: %s", e.Path, e.Rank, where)
	}
	return fmt.Sprintf("%s: %s%v", e.Op, where, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// and returns an error about the bytes of both. Either may be nil.
func (e *Error) and(o *Error) *Error {
	if e == nil || o == nil {
		return cmp.Or(e, o)
	}
	lo, hi := min(e.Off, o.Off), max(e.Off+e.Len, o.Off+o.Len)
	return &Error{Op: e.Op, Path: e.Path, Rank: e.Rank, Off: lo, Len: hi - lo, Err: e.Err}
}

// op is an operation on a file.
type op int64

const (
	opOpen op = iota
	opClose
	opSync
	opSetSize
	opPreallocate
	opReadAtAll
	opWriteAtAll
	opAppendAll
	opReadView
	opWriteView
	opReadNpy
	opWriteNpy
	opReadAt
	opWriteAt
	opSize
	opReadNpyHeader
)

// String returns the name of the operation in lower case.
func (o op) String() string {
	return [...]string{"open", "close", "sync", "setsize", "preallocate", "readatall", "writeatall", "appendall",
		"readview", "writeview", "readnpy", "writenpy", "readat", "writeat", "size", "readnpyheader"}[o]
}

// call is what a rank sends to the others about its call of a collective operation.
type call struct {
	Op     op
	Arg    int64 // the same on all ranks
	Lo, Hi int64 // all bytes that the rank moves are between these
	Bytes  int64
	Pieces int64
	Size   int64 // of the file
	State  state
}

// state says what a rank has done when it tells the others about its call.
type state int64

const (
	ready   state = iota // nothing yet
	refused              // nothing: its arguments are wrong
	moved                // it has moved its bytes
	failed               // it has tried that, and has an error
)

// failure is the error of a rank in a form that can be sent.
type failure struct {
	Off, Len int64
	Cause    []byte // empty: none
}

func (e *Error) failure() failure {
	if e == nil {
		return failure{}
	}
	return failure{e.Off, e.Len, backend.EncodeError(e.Err, 4096)}
}

// errClosed is the error of a closed file, by both names.
var errClosed = fmt.Errorf("%w: %w", cohort.ErrClosed, fs.ErrClosed)

// bare returns an error without the path and the operation that this package and os add.
func bare(err error) error {
	var e *Error
	if errors.As(err, &e) {
		err = e.Err
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	if errors.Is(err, fs.ErrClosed) || errors.Is(err, cohort.ErrClosed) {
		return errClosed
	}
	return err
}

// agreement lets the ranks of a file agree on an operation: before it on what they call, and after it on its errors.
type agreement struct {
	c    *cohort.Comm
	path string
	op   op
}

// fault returns the error of this rank, or nil for nil.
func (m *agreement) fault(off, n int64, err error) *Error {
	if err == nil {
		return nil
	}
	return &Error{Op: m.op.String(), Path: m.path, Rank: m.c.Rank(), Off: off, Len: n, Err: bare(err)}
}

// gather returns the calls of all ranks, and their errors if a rank has one. If the ranks cannot agree, the error
// says that all of this rank's bytes may be missing.
func (m *agreement) gather(mine call, bad *Error) ([]call, []failure, error) {
	mine.Op = m.op
	all := make([]call, m.c.Size())
	err := cohort.Allgather(m.c, []call{mine}, all)
	var failures []failure
	for r := 0; err == nil && r < len(all) && failures == nil; r++ {
		if s := all[r].State; s == refused || s == failed {
			failures, err = values.Allgather(m.c, bad.failure())
		}
	}
	if err != nil {
		return nil, nil, m.fault(mine.Lo, mine.Hi-mine.Lo, err)
	}
	return all, failures, nil
}

// begin makes the ranks agree on a call. A rank whose arguments are wrong gets its own error, and the others
// ErrMismatch. done is the error of what this rank has done before the others have called.
func (m *agreement) begin(mine call, bad error, done *Error) ([]call, []failure, error) {
	wrong := m.fault(0, 0, bad)
	if wrong != nil {
		mine.State, done = refused, wrong
	}
	all, failures, err := m.gather(mine, done)
	if err != nil {
		return nil, nil, err
	}
	if wrong != nil {
		return nil, nil, wrong
	}
	for r, c := range all {
		switch {
		case c.Op != all[0].Op:
			if slices.ContainsFunc(all, func(c call) bool { return c.Op == opClose }) {
				m.c.Close() // so that no rank waits for one that has left
			}
			err = backend.Faultf(cohort.ErrMismatch, "rank 0 calls %v, rank %d %v", all[0].Op, r, c.Op)
		case c.State == refused:
			err = backend.Faultf(cohort.ErrMismatch, "rank %d: %v", r, backend.DecodeError(failures[r].Cause))
		case c.Arg != all[0].Arg:
			err = backend.Faultf(cohort.ErrMismatch, "rank 0 and rank %d give %s", r, c.Op.difference(all[0].Arg, c.Arg))
		}
		if err != nil {
			return nil, nil, m.fault(0, 0, err)
		}
	}
	return all, failures, nil
}

// difference describes how two calls of an operation with different Args differ.
func (o op) difference(a, b int64) string {
	switch o {
	case opOpen:
		return "different names, flags or permissions"
	case opWriteNpy:
		return "different sizes, or elements of different types"
	}
	return fmt.Sprintf("%d and %d bytes", a, b)
}

// end makes the ranks agree on the result: each returns the errors of all.
func (m *agreement) end(lo, hi int64, bad *Error) error {
	mine := call{Lo: lo, Hi: hi, State: moved}
	if bad != nil {
		mine.State = failed
	}
	_, failures, err := m.gather(mine, bad)
	if err != nil {
		return err
	}
	return m.join(failures)
}

// join returns the errors of all ranks.
func (m *agreement) join(failures []failure) error {
	var errs []error
	for r, f := range failures {
		if cause := backend.DecodeError(f.Cause); cause != nil {
			errs = append(errs, &Error{Op: m.op.String(), Path: m.path, Rank: r, Off: f.Off, Len: f.Len, Err: cause})
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
