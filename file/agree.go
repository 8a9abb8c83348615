package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

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
	Failed int64 // 1 if the rank has an error
}

// failure is the error of a rank in a form that can be sent.
type failure struct {
	Off, Len int64
	Errno    uint64
	Code     uint8
	Short    bool // the file has ended
	Text     string
}

func (e *Error) failure() (f failure) {
	if e == nil {
		return f
	}
	f = failure{Off: e.Off, Len: e.Len, Code: backend.Code(e.Err), Short: errors.Is(e.Err, io.ErrUnexpectedEOF), Text: e.Err.Error()}
	var no syscall.Errno
	if errors.As(e.Err, &no) {
		f.Errno = uint64(no)
	}
	return f
}

// cause returns the error that a rank has sent.
func (f failure) cause() error {
	switch {
	case f.Errno != 0:
		return syscall.Errno(f.Errno)
	case f.Short:
		return io.ErrUnexpectedEOF
	case f.Code == backend.Code(cohort.ErrInternal):
		return errors.New(f.Text)
	}
	s := backend.Sentinel(f.Code)
	return &backend.Fault{Sentinel: s, Text: strings.TrimPrefix(f.Text, s.Error()+": ")}
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
	if bad != nil {
		mine.Failed = 1
	}
	all := make([]call, m.c.Size())
	err := cohort.Allgather(m.c, []call{mine}, all)
	var failures []failure
	for r := 0; err == nil && r < len(all) && failures == nil; r++ {
		if all[r].Failed != 0 {
			failures, err = values.Allgather(m.c, bad.failure())
		}
	}
	if err != nil {
		return nil, nil, m.fault(mine.Lo, mine.Hi-mine.Lo, err)
	}
	return all, failures, nil
}

// begin makes the ranks agree on a call before anything is done. A rank whose arguments are wrong gets its own
// error, and the others ErrMismatch.
func (m *agreement) begin(mine call, bad error) ([]call, error) {
	wrong := m.fault(0, 0, bad)
	all, failures, err := m.gather(mine, wrong)
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	for r, c := range all {
		switch {
		case c.Op != all[0].Op:
			if slices.ContainsFunc(all, func(c call) bool { return c.Op == opClose }) {
				m.c.Close() // so that no rank waits for one that has left
			}
			err = backend.Faultf(cohort.ErrMismatch, "rank 0 calls %v, rank %d %v", all[0].Op, r, c.Op)
		case c.Failed != 0:
			err = backend.Faultf(cohort.ErrMismatch, "rank %d: %v", r, failures[r].Text)
		case c.Arg != all[0].Arg:
			err = backend.Faultf(cohort.ErrMismatch, "rank 0 and rank %d give %s", r, c.Op.difference(all[0].Arg, c.Arg))
		}
		if err != nil {
			return nil, m.fault(0, 0, err)
		}
	}
	return all, nil
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
	_, failures, err := m.gather(call{Lo: lo, Hi: hi}, bad)
	if err != nil {
		return err
	}
	var errs []error
	for r, f := range failures {
		if f.Text != "" {
			errs = append(errs, &Error{Op: m.op.String(), Path: m.path, Rank: r, Off: f.Off, Len: f.Len, Err: f.cause()})
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
