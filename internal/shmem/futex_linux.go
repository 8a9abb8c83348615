package shmem

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0 // FUTEX_WAIT, not private: the word is shared between processes
	futexWake = 1
)

// FutexWait sleeps in the kernel while *word is val, until FutexWake, a signal
// or the timeout (0: none). It may return early; the caller looks again.
func FutexWait(word *atomic.Uint32, val uint32, timeout time.Duration) {
	var ts *unix.Timespec
	if timeout > 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	// SAFETY: the kernel reads the word and the timespec during the call only.
	syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(val),
		uintptr(unsafe.Pointer(ts)), 0, 0)
}

// FutexWake wakes up to n waiters of the word, in all processes.
func FutexWake(word *atomic.Uint32, n int) {
	// SAFETY: the kernel uses the address as a key only. The call never blocks.
	syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, uintptr(n), 0, 0, 0)
}

// Yield lets another thread run on this core.
func Yield() { syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
