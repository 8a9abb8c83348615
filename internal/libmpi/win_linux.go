//go:build cgo

package libmpi

/*
#include "calls.h"
*/
import "C"

import "unsafe"

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
