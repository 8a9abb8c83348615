package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Every failure wraps one of these sentinels. The root package exports them under
// the same names. docs/errors.md says what each means and what to do about it.
var (
	ErrBuffer       = errors.New("invalid buffer")
	ErrCount        = errors.New("invalid count")
	ErrType         = errors.New("invalid element type")
	ErrTag          = errors.New("invalid tag")
	ErrRank         = errors.New("invalid rank")
	ErrRoot         = errors.New("invalid root")
	ErrOp           = errors.New("invalid reduction operation")
	ErrTruncate     = errors.New("message truncated")
	ErrComm         = errors.New("invalid communicator")
	ErrClosed       = errors.New("closed")
	ErrBusy         = errors.New("busy")
	ErrRequest      = errors.New("invalid request")
	ErrWin          = errors.New("invalid window")
	ErrAlloc        = errors.New("cannot allocate")
	ErrInit         = errors.New("cannot join the job")
	ErrNotSupported = errors.New("not supported")
	ErrTimeout      = errors.New("timed out")
	ErrCanceled     = errors.New("canceled")
	ErrPeerLost     = errors.New("peer lost")
	ErrMismatch     = errors.New("mismatched calls")
	ErrBroken       = errors.New("communicator is broken")
	ErrInternal     = errors.New("internal error")
)

// sentinels gives every sentinel a code that processes exchange. The code is the
// position, so new sentinels go to the end. An error of the system has errnoCode plus its number.
var sentinels = [...]error{
	nil, ErrBuffer, ErrCount, ErrType, ErrTag, ErrRank, ErrRoot, ErrOp, ErrTruncate, ErrComm,
	ErrClosed, ErrBusy, ErrRequest, ErrWin, ErrAlloc, ErrInit, ErrNotSupported, ErrTimeout,
	ErrCanceled, ErrPeerLost, ErrMismatch, ErrBroken, ErrInternal, io.ErrUnexpectedEOF,
}

const (
	errnoCode = 128
	leftCode  = errnoCode - 1 // ErrPeerLost of a Fault whose peer has left
	overCode  = leftCode - 1  // ErrCanceled of a Fault with a number in Over, which comes next
)

var internalCode = uint8(slices.Index(sentinels[:], ErrInternal))

// Code returns the code of the first sentinel that err wraps, or else of its error of the system: 0 for nil,
// that of ErrInternal for an error that wraps none.
func Code(err error) uint8 {
	if err == nil {
		return 0
	}
	for i, s := range sentinels[1:] {
		if errors.Is(err, s) {
			return uint8(i + 1)
		}
	}
	if no := syscall.Errno(0); errors.As(err, &no) && 0 < no && no < errnoCode {
		return errnoCode + uint8(no)
	}
	return internalCode
}

// Sentinel returns the sentinel with this code, or the error of the system: nil for 0, ErrInternal for an
// unknown code.
func Sentinel(code uint8) error {
	switch {
	case int(code) < len(sentinels):
		return sentinels[code]
	case code > errnoCode:
		return syscall.Errno(code - errnoCode)
	}
	return ErrInternal
}

// Harmless returns err, an error of the program, if its methods can be called. If one panics, as those of a nil pointer
// may, the result is an error that says where. It is nil for nil.
func Harmless(err error) (harmless error) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			harmless = fmt.Errorf("an error of type %T %s", err, panicked())
		}
	}()
	_ = err.Error()
	_ = errors.Is(err, noError) // this and AsType call Is, As and Unwrap of all that err wraps
	_, _ = errors.AsType[*unknown](err)
	return err
}

// unknown is the type of noError alone, which no error wraps.
type unknown struct{ error }

var noError = &unknown{errors.New("no error")}

// Fault is an error with a sentinel and a text. errors.Is compares it by its
// sentinel.
type Fault struct {
	Sentinel error  // one of the sentinels above
	Text     string // the facts, with values
	Left     bool   // of ErrPeerLost: the peer has closed the communicator in good order

	// Over is of ErrCanceled. If the context of a rank's first communicator has been canceled, and those of other ranks
	// go on, it is 1 more than the rank's number in the job. Such a rank can do nothing more, so to the other ranks it
	// is lost (Elsewhere).
	Over int
}

// Elsewhere returns err as ranks see it whose own context goes on: a rank that an ErrCanceled with Over names is lost.
func Elsewhere(err error) error {
	f, ok := errors.AsType[*Fault](err)
	if !ok || f.Over == 0 {
		return err
	}
	lost := error(Faultf(ErrPeerLost, "rank %d's context has ended: %s", f.Over-1, f.Text))
	if errors.Is(err, ErrBroken) {
		lost = &Broken{Cause: lost}
	}
	return lost
}

// CommClosed ends the operations of a communicator that this rank has closed, and is the error of new ones.
var CommClosed error = &Fault{Sentinel: ErrClosed, Text: "the communicator is closed"}

// TookBack ends a receive that has matched a message which its sender has canceled since.
var TookBack error = &Fault{Sentinel: ErrCanceled, Text: "the sender canceled the message"}

// Faultf returns a Fault with a formatted text.
func Faultf(sentinel error, format string, args ...any) *Fault {
	return &Fault{Sentinel: sentinel, Text: fmt.Sprintf(format, args...)}
}

// AsFault returns err as a Fault: err itself, or one with its sentinel and text.
func AsFault(err error) *Fault {
	if f, ok := err.(*Fault); ok {
		return f
	}
	s := Sentinel(Code(err))
	return &Fault{Sentinel: s, Text: strings.TrimPrefix(err.Error(), s.Error()+": ")}
}

// Encode returns what tells the fault to another rank, in most bytes: the code of its sentinel, and its text.
func (f *Fault) Encode(most int) []byte {
	head := []byte{Code(f.Sentinel)}
	switch {
	case f.Left:
		head[0] = leftCode
	case f.Over > 0:
		head = binary.LittleEndian.AppendUint32([]byte{overCode}, uint32(f.Over))
	}
	return append(head, f.Text[:min(len(f.Text), most-len(head))]...)
}

// EncodeError returns what tells any error to another rank, in most bytes. It is nil for nil.
func EncodeError(err error, most int) []byte {
	if err == nil {
		return nil
	}
	code, text := Code(err), err.Error()
	if !errors.Is(err, Sentinel(code)) {
		code = 0 // it wraps none
	}
	return append([]byte{code}, text[:min(len(text), most-1)]...)
}

// DecodeError is the inverse of EncodeError. Its result has the text of the error, and wraps its sentinel.
func DecodeError(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return &otherError{strings.ToValidUTF8(string(b[1:]), ""), Sentinel(b[0])}
}

// otherError is an error of another rank. The text includes that of the sentinel.
type otherError struct {
	text     string
	sentinel error
}

func (e *otherError) Error() string { return e.text }
func (e *otherError) Unwrap() error { return e.sentinel }

// DecodeFault is the inverse of Encode. Its result has a sentinel, whatever b is.
func DecodeFault(b []byte) *Fault {
	f := &Fault{Sentinel: ErrInternal}
	if len(b) == 0 {
		return f
	}
	code, text := b[0], b[1:]
	switch {
	case code == 0: // no fault has it
	case code == leftCode:
		f.Sentinel, f.Left = ErrPeerLost, true
	case code == overCode && len(text) >= 4:
		f.Sentinel, f.Over = ErrCanceled, int(binary.LittleEndian.Uint32(text))
		text = text[4:]
	default:
		f.Sentinel = Sentinel(code)
	}
	f.Text = string(text)
	return f
}

// PeerLeft returns the Fault of an operation that needs a rank that has closed the communicator.
func PeerLeft(format string, rank int) *Fault {
	return &Fault{Sentinel: ErrPeerLost, Text: fmt.Sprintf(format, rank), Left: true}
}

// WrongLength returns the ErrMismatch of two ranks that expect different lengths of a block. The lengths are in bytes; got
// is negative if it is not known. size is that of an element, or 0 if there is none.
func WrongLength(size, sender, got, receiver, want int) *Fault {
	got, want, unit := inElements(size, got, want)
	if got < 0 {
		return Faultf(ErrMismatch, "rank %d sent more than the %d %s that rank %d expects", sender, want, unit, receiver)
	}
	return Faultf(ErrMismatch, "rank %d sent %d %s, rank %d expects %d", sender, got, unit, receiver, want)
}

// TooLong is the ErrTruncate of a receive. The layer above returns it in elements.
type TooLong struct{ Bytes, Room int } // Bytes is negative if it is not known

// Error implements error.
func (e *TooLong) Error() string {
	return Faultf(ErrTruncate, "%d bytes, the buffer has %d", e.Bytes, e.Room).Error()
}

// Unwrap returns the sentinel.
func (e *TooLong) Unwrap() error { return ErrTruncate }

// In returns the error of a receive of elements of a size.
func (e *TooLong) In(size int, st Status) error {
	got, room, unit := inElements(size, e.Bytes, e.Room)
	if got < 0 {
		return Faultf(ErrTruncate, "the message from rank %d with tag %d is longer than the buffer of %d %s", st.Source, st.Tag, room, unit)
	}
	return Faultf(ErrTruncate, "the message from rank %d with tag %d has %d %s, the buffer %d", st.Source, st.Tag, got, unit, room)
}

// inElements returns two lengths in elements of a size, or in bytes if they are not whole ones.
func inElements(size, got, want int) (g, w int, unit string) {
	switch {
	case size <= 0 || got > 0 && got%size != 0 || want%size != 0:
		return got, want, "bytes"
	case got < 0:
		return got, want / size, "elements"
	}
	return got / size, want / size, "elements"
}

// While adds what an operation was doing to the error of a Bound that ended it.
func While(err error, doing string) error {
	if f, ok := err.(*Fault); ok && (f.Sentinel == ErrTimeout || f.Sentinel == ErrCanceled) {
		return &Fault{Sentinel: f.Sentinel, Text: f.Text + ": " + doing, Over: f.Over}
	}
	return err
}

// RankList lists ascending ranks for an error: "rank 3", "ranks 1, 2, 5-9 and 40 more".
func RankList(ranks []int) string {
	const most = 16
	var parts []string
	for i, k := 0, 0; i < len(ranks); i = k {
		if len(parts) == most {
			parts[most-1] += fmt.Sprintf(" and %d more", len(ranks)-i)
			break
		}
		for k = i + 1; k < len(ranks) && ranks[k] == ranks[k-1]+1; k++ {
		}
		if k < i+3 {
			k = i + 1
			parts = append(parts, strconv.Itoa(ranks[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[k-1]))
		}
	}
	word := "ranks "
	if len(ranks) == 1 {
		word = "rank "
	}
	return word + strings.Join(parts, ", ")
}

// Error implements error.
func (f *Fault) Error() string {
	if f.Text == "" {
		return f.Sentinel.Error()
	}
	return f.Sentinel.Error() + ": " + f.Text
}

// Unwrap returns the sentinel.
func (f *Fault) Unwrap() error { return f.Sentinel }

// Broken is the error of operations on a broken communicator. It wraps ErrBroken
// and the error that the communicator was broken with.
type Broken struct{ Cause error }

// Error implements error.
func (e *Broken) Error() string {
	if errors.Is(e.Cause, ErrBroken) { // its text says so already
		return e.Cause.Error()
	}
	return ErrBroken.Error() + ": " + e.Cause.Error()
}

// Unwrap returns ErrBroken and the cause.
func (e *Broken) Unwrap() []error { return []error{ErrBroken, e.Cause} }
