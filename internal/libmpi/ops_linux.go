//go:build cgo

package libmpi

/*
#include "calls.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// UserOps is the maximum number of user-defined operations at a time.
const UserOps = int(C.COH_USER_OPS)

// Apply sets inout[i] = in[i] op inout[i] for the elements of both.
type Apply func(in, inout []byte)

// userOp is the operation in a slot.
type userOp struct {
	apply Apply
	size  int // of an element in bytes
}

var (
	slots   [UserOps]atomic.Pointer[userOp]
	slotsMu sync.Mutex
)

// NewOp makes an operation on elements of size bytes. It returns false if there are UserOps
// already.
func NewOp(commutes bool, size int, f Apply) (op Op, slot int, ok bool, code Code) {
	slotsMu.Lock()
	defer slotsMu.Unlock()
	for slot = range slots {
		if slots[slot].Load() == nil {
			break
		}
	}
	if slots[slot].Load() != nil {
		return 0, 0, false, 0
	}
	slots[slot].Store(&userOp{f, size})
	enter()
	code = Code(C.coh_call_op_create(C.int(slot), flag(commutes), cell(&op)))
	leave()
	if code != 0 {
		slots[slot].Store(nil)
	}
	return op, slot, code == 0, code
}

// FreeOp releases an operation that NewOp made, and its slot.
func FreeOp(op Op, slot int) Code {
	enter()
	code := Code(C.coh_call_op_free(C.uintptr_t(op)))
	leave()
	slots[slot].Store(nil)
	return code
}

//export coh_go_apply
func coh_go_apply(slot C.int, in, inout unsafe.Pointer, n C.int64_t) {
	u := slots[slot].Load()
	m := int(n) * u.size
	u.apply(unsafe.Slice((*byte)(in), m), unsafe.Slice((*byte)(inout), m))
}
