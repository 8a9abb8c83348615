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

// Level is a thread level, in the order of the standard's.
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

// Code is what a call returned: 0, the library's error code, or one of the
// shim's own below 0.
type Code int32

// The shim's own codes.
const (
	missing   = Code(C.COH_MISSING)
	Missing   = missing               // the library has not got the function
	TooLarge  = Code(C.COH_TOO_LARGE) // a count above 2^31-1 and no way to say it
	Thread    = Code(C.COH_THREAD)    // only the thread that called Init may call
	NoMemory  = Code(C.COH_NO_MEMORY) // no memory for a temporary buffer
	Truncated = Code(C.COH_TRUNCATED) // the message was longer
)

// At level Serialized calls come one at a time. Below it only one thread calls.
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

// State says whether the library has been initialised and finalized, by whomever,
// and at which thread level.
func State() (initialized, finalized bool, level Level, code Code) {
	var i, f, l C.int
	code = Code(C.coh_call_flags(&i, &f, &l))
	return i != 0, f != 0, Level(l), code
}

// Init initialises the library. It must be called on a thread that stays locked
// for as long as Finalize is to come. restored is how many signal dispositions
// the library had changed and were put back.
func Init(want Level) (got Level, restored int, code Code) {
	var p, r C.int
	code = Code(C.coh_init(C.int(want), &p, &r))
	return Level(p), int(r), code
}

// Restrict makes calls come one at a time (Serialized), or only from the thread
// that called Init (Funneled and Single).
func Restrict(l Level) {
	serial = l == Serialized
	if l < Serialized {
		C.coh_guard_thread = 1
	}
}

// Adopt makes the calling thread, which must stay locked, the one that may call
// below Serialized, where other code called Init.
func Adopt() { C.coh_adopt() }

// MayCall reports whether the calling thread may call the library.
func MayCall() bool { return C.coh_may_call() != 0 }

// Finalize ends the library. It must be called on the thread that called Init.
func Finalize() Code { return Code(C.coh_call_finalize()) }

// End calls what the library has registered for the end of the process (atexit), which a Go program
// does not come to. It follows Finalize.
func End() { C.coh_end_library() }

// Abort ends all processes of the job.
func Abort(code int) Code { return Code(C.coh_call_abort(C.int(code))) }

// Has reports whether the library has a function.
func Has(function string) bool {
	b := append([]byte(function), 0)
	return C.coh_call_has((*C.char)(unsafe.Pointer(&b[0]))) != 0
}

// CUDA reports whether the library says that it takes device pointers: 1 yes,
// 0 no, -1 it does not say. Some libraries can be asked only after Init.
func CUDA() int { return int(C.coh_call_cuda()) }

func versions() (text string, major, minor int) {
	b := make([]byte, 8192+1)
	C.coh_call_library_version((*C.char)(unsafe.Pointer(&b[0])))
	var a, i C.int
	C.coh_call_version(&a, &i)
	return cString(b), int(a), int(i)
}

// Processor returns the name of the machine as the library has it.
func Processor() string {
	b := make([]byte, 1024)
	C.coh_call_processor((*C.char)(unsafe.Pointer(&b[0])))
	return cString(b)
}

// Error returns what a code means: nil for 0, a *backend.MPIError for the
// library's own, a Fault for the shim's.
func Error(code Code) error {
	fault := func(s error, text string) error { return &backend.Fault{Sentinel: s, Text: text} }
	switch code {
	case 0:
		return nil
	case Missing:
		return fault(backend.ErrNotSupported, "this MPI library has not got the function")
	case TooLarge:
		return fault(backend.ErrCount, "this MPI library cannot count so many elements")
	case Thread:
		return fault(backend.ErrInit, "the thread level allows MPI calls only from the thread that called Init: "+
			"ask for serialized or multiple, or keep the goroutine there with runtime.LockOSThread")
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

// Class returns the class of a code of the library's.
func Class(code Code) int {
	if code <= 0 {
		return int(code)
	}
	var class C.int
	text := make([]byte, 1024)
	enter()
	defer leave()
	C.coh_call_error(C.int(code), &class, (*C.char)(unsafe.Pointer(&text[0])))
	return int(class)
}
