//go:build cgo

package libmpi

/*
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Recovery says whether the library can go on after processes have failed, and if not, or only if it is
// started in another way, why. It is asked after Init.
//
// The functions of ULFM are there or not, which says little of MPICH: the device ch4, which all builds
// have by default since 3.4, has them and ends the process with a failed assertion in each of them
// (src/mpid/ch4/src/ch4_comm.c; so 4.0.2 does). Only the device ch3 has more behind them. Open MPI has
// them from 5.0 on and says in the attribute MPI_FT whether mpirun has switched them on.
func (l *Library) Recovery() (able bool, why string) {
	switch on := C.coh_call_ulfm(); {
	case on == 0:
		return false, "it has no ULFM (MPIX_Comm_shrink and its like), which Open MPI has from 5.0 on, and MPICH with the device ch3"
	case l.ABI == OpenMPI && on < 0:
		return false, notSwitchedOn
	case l.ABI == OpenMPI:
		return true, ""
	}
	device := deviceOf(l.Text)
	switch {
	case strings.HasPrefix(device, "ch3"):
		return true, ""
	case device == "":
		return false, "its functions for that (ULFM) may end the process, which those of MPICH do but with the device ch3, and it does not say its device"
	}
	return false, fmt.Sprintf("its functions for that (ULFM) end the process: its device is %s, and MPICH has them with the device ch3 only", device)
}

const notSwitchedOn = "its functions for that (ULFM) are not switched on: start the program with mpirun --with-ft ulfm"

// deviceOf returns the device that a library of MPICH's family names in its version: ch4:ucx, ch3:nemesis.
func deviceOf(text string) string {
	for line := range strings.Lines(text) {
		name, device, ok := strings.Cut(line, ":")
		if ok && strings.HasSuffix(strings.TrimSpace(name), "Device") {
			return strings.Trim(device, " \t\n\x00")
		}
	}
	return ""
}

// Failed reports whether a code is that of an operation that a process failure has ended.
func Failed(code Code) bool {
	return code > 0 && strings.HasPrefix(ClassName(loaded.ABI, Class(code)), "MPIX_ERR_PROC_FAILED")
}

// Undecided reports whether a code is that of a request which is not complete, though a process failure
// keeps it from being so for now: a receive from any source.
func Undecided(code Code) bool {
	return code > 0 && ClassName(loaded.ABI, Class(code)) == "MPIX_ERR_PROC_FAILED_PENDING"
}

// Revoke ends what all ranks do on the communicator, and will do, but for Agree and Shrink.
func (c Comm) Revoke() Code {
	enter()
	defer leave()
	return Code(C.coh_call_comm_revoke(C.uintptr_t(c)))
}

// Agree returns the bitwise and of the flags of all ranks that are left. Collective. A code for which
// Failed is true comes to all ranks, and the flag is agreed on all the same; it says that a rank is
// lost which not all ranks had acknowledged.
func (c Comm) Agree(flag int32) (int32, Code) {
	f := C.int(flag)
	enter()
	defer leave()
	code := Code(C.coh_call_comm_agree(C.uintptr_t(c), &f))
	return int32(f), code
}

// Shrink makes a communicator of the ranks that are left. Collective over them.
func (c Comm) Shrink() (Comm, Code) {
	var out C.uintptr_t
	enter()
	defer leave()
	code := Code(C.coh_call_comm_shrink(C.uintptr_t(c), &out))
	return Comm(out), code
}

// Acknowledge says that this rank knows of the losses that the library knows of here.
func (c Comm) Acknowledge() Code {
	enter()
	defer leave()
	return Code(C.coh_call_comm_ack(C.uintptr_t(c)))
}

// WorldRanks returns the ranks in MPI_COMM_WORLD of the size members of the communicator, in their order.
func (c Comm) WorldRanks(size int) ([]int, Code) { return c.ranks(0, size) }

// Lost returns the ranks in MPI_COMM_WORLD of those of the size members that are known here to be lost,
// in the order in which that became known.
func (c Comm) Lost(size int) ([]int, Code) { return c.ranks(1, size) }

func (c Comm) ranks(lost C.int, size int) ([]int, Code) {
	ranks := make([]int32, max(size, 1))
	var n C.int
	enter()
	code := Code(C.coh_call_comm_ranks(C.uintptr_t(c), lost, C.int(len(ranks)), (*C.int)(unsafe.SliceData(ranks)), &n))
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
