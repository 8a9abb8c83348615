package word

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	opWait = 0 // FUTEX_WAIT, not private: the word is shared between processes
	opWake = 1
)

func futexWait(w *atomic.Uint32, old uint32, timeout time.Duration) {
	var ts *unix.Timespec
	if timeout > 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	// SAFETY: the kernel reads the word and the timespec during the call only.
	syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), opWait, uintptr(old),
		uintptr(unsafe.Pointer(ts)), 0, 0)
}

func futexWake(w *atomic.Uint32, n int) {
	// SAFETY: the kernel uses the address as a key only. The call never blocks.
	syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), opWake, uintptr(n), 0, 0, 0)
}
