//go:build cgo

package libmpi

/*
#include "calls.h"
*/
import "C"

import "unsafe"

// Handles of the library, of any width there. 0 is no handle.
type (
	// Comm is an MPI_Comm.
	Comm uintptr
	// Type is an MPI_Datatype.
	Type uintptr
	// Op is an MPI_Op.
	Op uintptr
	// Request is an MPI_Request.
	Request uintptr
	// Message is an MPI_Message.
	Message uintptr
)

// World returns the communicator of all processes.
func World() Comm { return Comm(C.coh_call_world()) }

// Facts returns the calling rank, the number of ranks, and the largest tag.
func (c Comm) Facts() (rank, size, maxTag int, code Code) {
	var r, s, u C.int
	enter()
	code = Code(C.coh_call_comm_facts(C.uintptr_t(c), &r, &s, &u))
	leave()
	return int(r), int(s), int(u), code
}

// Dup makes a communicator of the same ranks. Collective.
func (c Comm) Dup() (made Comm, code Code) {
	enter()
	code = Code(C.coh_call_comm_dup(C.uintptr_t(c), cell(&made)))
	leave()
	return made, code
}

// Create makes a communicator of some of c's ranks, which all call it.
func (c Comm) Create(ranks []int32, tag int) (made Comm, code Code) {
	enter()
	code = Code(C.coh_call_comm_create(C.uintptr_t(c), C.int(len(ranks)), (*C.int)(unsafe.SliceData(ranks)), C.int(tag), cell(&made)))
	leave()
	return made, code
}

// Shared makes a communicator of the ranks of each node. Collective.
func (c Comm) Shared() (made Comm, code Code) {
	enter()
	code = Code(C.coh_call_comm_shared(C.uintptr_t(c), cell(&made)))
	leave()
	return made, code
}

// Free releases a communicator.
func (c Comm) Free() Code {
	enter()
	defer leave()
	return Code(C.coh_call_comm_free(C.uintptr_t(c)))
}

// WorldRanks returns the ranks in MPI_COMM_WORLD of the communicator's members, in order; it has at most room of them.
func (c Comm) WorldRanks(room int) ([]int, Code) {
	ranks := make([]int32, room)
	var n C.int
	enter()
	code := Code(C.coh_call_comm_ranks(C.uintptr_t(c), C.int(room), (*C.int)(unsafe.SliceData(ranks)), &n))
	leave()
	if code != 0 {
		return nil, code
	}
	out := make([]int, n)
	for i := range out {
		out[i] = int(ranks[i])
	}
	return out, 0
}

// TypeOf returns the type of a kind of package backend, 0 if the library has none.
func TypeOf(kind int) Type { return Type(C.coh_call_type_of(C.int(kind))) }

// TypeBytes makes the type of size bytes.
func TypeBytes(size int) (made Type, code Code) {
	enter()
	code = Code(C.coh_call_type_bytes(C.int64_t(size), cell(&made)))
	leave()
	return made, code
}

// Free releases a type that TypeBytes made.
func (t Type) Free() Code {
	enter()
	defer leave()
	return Code(C.coh_call_type_free(C.uintptr_t(t)))
}

// OpOf returns the library's operation for one of package backend, 0 if it has none.
func OpOf(op int) Op { return Op(C.coh_call_op_of(C.int(op))) }

// Win is an MPI_Win of shared memory. 0 is none.
type Win uintptr

// ShareMemory makes size bytes of memory that all ranks of c share. Collective; the ranks are on
// one node. The memory is valid until Free.
func (c Comm) ShareMemory(size int) (w Win, mem []byte, code Code) {
	var out, base C.uintptr_t
	enter()
	code = Code(C.coh_call_win_shared(C.uintptr_t(c), C.int64_t(size), &out, &base))
	leave()
	if code != 0 {
		return Win(out), nil, code
	}
	// SAFETY: the library has mapped size bytes there, outside of Go's heap.
	return Win(out), unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&base))), size), 0
}

// Free releases the memory. Collective.
func (w Win) Free() Code {
	enter()
	defer leave()
	return Code(C.coh_call_win_free(C.uintptr_t(w)))
}
