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

// Recovery returns whether the library can continue after processes have failed, and if not, why.
// It is called after Init.
//
// MPICH may have the functions of ULFM and still fail: with the device ch4, the default since 3.4,
// each of them ends the process with a failed assertion (src/mpid/ch4/src/ch4_comm.c; seen in
// 4.0.2). Only the device ch3 implements them. Open MPI has them from 5.0 on, and reports in the
// attribute MPI_FT whether mpirun has switched them on.
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
		return false, "its ULFM functions may end the process, as MPICH's do except with the device ch3, and it does not report its device"
	}
	return false, fmt.Sprintf("its ULFM functions end the process: its device is %s, and MPICH implements them with the device ch3 only", device)
}

const notSwitchedOn = "its ULFM functions are not switched on; start the program with mpirun --with-ft ulfm"

// deviceOf returns the device in the version text of a library of MPICH's family: ch4:ucx,
// ch3:nemesis.
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

// Undecided reports whether a code is that of a receive from any source that is not complete, and
// that a process failure keeps from completing for now.
func Undecided(code Code) bool {
	return code > 0 && ClassName(loaded.ABI, Class(code)) == "MPIX_ERR_PROC_FAILED_PENDING"
}

// Revoke ends all operations of all ranks on the communicator, also later ones, except Agree and
// Shrink.
func (c Comm) Revoke() Code {
	enter()
	defer leave()
	return Code(C.coh_call_comm_revoke(C.uintptr_t(c)))
}

// Agree returns the bitwise and of the flags of all remaining ranks. Collective. All ranks get a
// code for which Failed is true if not all had acknowledged a lost rank; the flag is valid all the
// same.
func (c Comm) Agree(flag int32) (int32, Code) {
	f := C.int(flag)
	enter()
	defer leave()
	code := Code(C.coh_call_comm_agree(C.uintptr_t(c), &f))
	return int32(f), code
}

// Shrink makes a communicator of the remaining ranks. Collective over them.
func (c Comm) Shrink() (Comm, Code) {
	var out C.uintptr_t
	enter()
	defer leave()
	code := Code(C.coh_call_comm_shrink(C.uintptr_t(c), &out))
	return Comm(out), code
}

// Acknowledge acknowledges the losses that the library knows on this rank.
func (c Comm) Acknowledge() Code {
	enter()
	defer leave()
	return Code(C.coh_call_comm_ack(C.uintptr_t(c)))
}

// WorldRanks returns the ranks in MPI_COMM_WORLD of the communicator's size members, in order.
func (c Comm) WorldRanks(size int) ([]int, Code) { return c.ranks(0, size) }

// Lost returns the ranks in MPI_COMM_WORLD of the members that this rank knows to be lost, in the
// order in which it learned of them.
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
