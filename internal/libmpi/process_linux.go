//go:build cgo

package libmpi

/*
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
)

// Level is a thread level, in the standard's order.
type Level int

// The thread levels (MPI-4.1 section 11.2.1).
const (
	Single Level = iota
	Funneled
	Serialized
	Multiple
)

var levelNames = [...]string{"single", "funneled", "serialized", "multiple"}

// String returns the level's name in lower case.
func (l Level) String() string {
	if l >= Single && l <= Multiple {
		return levelNames[l]
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// Code is the result of a call: 0, the library's error code, or one of the shim's below 0.
type Code int32

// Codes of the shim.
const (
	missing   = Code(C.COH_MISSING)
	Missing   = missing               // the library does not have the function
	TooLarge  = Code(C.COH_TOO_LARGE) // a count above 2^31-1 that the library cannot express
	Thread    = Code(C.COH_THREAD)    // only the thread that called Init may call
	NoMemory  = Code(C.COH_NO_MEMORY) // no memory for a temporary buffer
	Truncated = Code(C.COH_TRUNCATED) // the message is longer than the buffer
	Ended     = Code(C.COH_ENDED)     // EndBlocked has ended the call
)

// At level Serialized one call is made at a time. Below it only one thread calls.
var (
	serial bool
	one    sync.Mutex
)

func enter() {
	if serial {
		one.Lock()
	}
}

func leave() {
	if serial {
		one.Unlock()
	}
}

// State reports whether any code has initialized and finalized the library, and at which thread
// level.
func State() (initialized, finalized bool, level Level, code Code) {
	var i, f, l C.int
	code = Code(C.coh_call_flags(&i, &f, &l))
	return i != 0, f != 0, Level(l), code
}

// Init initializes the library. The caller's thread must stay locked until Finalize.
func Init(want Level) (got Level, code Code) {
	var p C.int
	code = Code(C.coh_init(C.int(want), &p))
	return Level(p), code
}

// Restrict allows one call at a time (Serialized), or only calls from the thread that called Init
// (Funneled and Single).
func Restrict(l Level) {
	serial = l == Serialized
	if l < Serialized {
		C.coh_guard_thread = 1
	}
}

// Adopt makes the calling thread, which must stay locked, the one that may call below Serialized.
// It is for an MPI that other code initialized.
func Adopt() { C.coh_adopt() }

// MayCall reports whether the calling thread may call the library.
func MayCall() bool { return C.coh_may_call() != 0 }

// Finalize ends the library. It must be called on the thread that called Init.
func Finalize() Code { return Code(C.coh_call_finalize()) }

// End calls what the library has registered for the end of the process (atexit), which a Go program
// never calls. It follows Finalize.
func End() { C.coh_end_library() }

// Abort ends all processes of the job.
func Abort(code int) Code { return Code(C.coh_call_abort(C.int(code))) }

// Blocked returns the number of threads in calls that may block.
func Blocked() int { return int(C.coh_blocked()) }

// EndBlocked takes threads out of calls that block in the library: these return Ended. It does not wait for that, and
// misses a thread that is in the C library or the kernel at the moment. From its first call on nobody may call the MPI
// library. Calls that it could end return Ended at once.
func EndBlocked() { C.coh_end_blocked() }

// Has reports whether the library has a function.
func Has(function string) bool {
	b := append([]byte(function), 0)
	return C.coh_call_has((*C.char)(unsafe.Pointer(&b[0]))) != 0
}

// CUDA returns whether the library accepts device pointers: 1 yes, 0 no, -1 if it does not report
// it. Some libraries can be asked only after Init.
func CUDA() int { return int(C.coh_call_cuda()) }

func versions() (text string, major, minor int) {
	b := make([]byte, 8192+1)
	C.coh_call_library_version((*C.char)(unsafe.Pointer(&b[0])))
	var a, i C.int
	C.coh_call_version(&a, &i)
	return cString(b), int(a), int(i)
}

// Error returns the error of a code: nil for 0, a *backend.MPIError for the library's codes, a
// Fault for the shim's.
func Error(code Code) error {
	fault := func(s error, text string) error { return &backend.Fault{Sentinel: s, Text: text} }
	switch code {
	case 0:
		return nil
	case Missing:
		return fault(backend.ErrNotSupported, "this MPI library does not have the function")
	case TooLarge:
		return fault(backend.ErrCount, "this MPI library takes counts up to 2^31-1 here; send less at a time")
	case Thread:
		return fault(backend.ErrInit, "the thread level allows MPI calls only from the thread that called Init; "+
			"set the level serialized or multiple, or keep the goroutine there with runtime.LockOSThread")
	case NoMemory:
		return fault(backend.ErrAlloc, "no memory for a temporary buffer")
	case Truncated:
		return fault(backend.ErrTruncate, "")
	}
	if code < 0 {
		return fault(backend.ErrInternal, fmt.Sprintf("code %d", code))
	}
	var class C.int
	text := make([]byte, 1024)
	enter()
	C.coh_call_error(C.int(code), &class, (*C.char)(unsafe.Pointer(&text[0])))
	leave()
	abi := loaded.ABI
	return &backend.MPIError{Class: int(class), Code: int(code), Text: cString(text), Sentinel: Sentinel(abi, int(class))}
}
