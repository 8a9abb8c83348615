//go:build cgo && linux

package mpi

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func lockThread() { runtime.LockOSThread() }

// yield gives the processor to another thread that wants it.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
