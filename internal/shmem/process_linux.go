package shmem

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxCopy is the most bytes one ReadProcess or WriteProcess moves: the calls do
// not report to the Go scheduler that they block, so they must be short.
const MaxCopy = 1 << 20

type iovec struct{ base, len uint64 }

// ReadProcess copies len(dst) bytes from address addr of process pid into dst,
// at most MaxCopy at a time inside.
func ReadProcess(pid int, addr uint64, dst []byte) error {
	return copyProcess(unix.SYS_PROCESS_VM_READV, pid, addr, dst)
}

// WriteProcess copies src to address addr of process pid.
func WriteProcess(pid int, addr uint64, src []byte) error {
	return copyProcess(unix.SYS_PROCESS_VM_WRITEV, pid, addr, src)
}

func copyProcess(call uintptr, pid int, addr uint64, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), MaxCopy)
		local := iovec{Addr(b), uint64(n)}
		remote := iovec{addr, uint64(n)}
		// SAFETY: local names n bytes of b, which b keeps alive; remote is the
		// kernel's to check against the other process.
		got, _, e := syscall.RawSyscall6(call, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1,
			uintptr(unsafe.Pointer(&remote)), 1, 0)
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return fmt.Errorf("copying %d bytes between this process and %d: %w", n, pid, e)
		case got == 0 || got > uintptr(n):
			return fmt.Errorf("copying between this process and %d stopped after %d of %d bytes", pid, got, n)
		}
		b = b[got:]
		addr += uint64(got)
	}
	return nil
}

// Gone reports whether a copy failed because the other process has ended.
func Gone(err error) bool { return errors.Is(err, unix.ESRCH) }

// Process names a process for good, unlike its number, which is used again.
type Process struct{ fd int }

// OpenProcess returns a running process.
func OpenProcess(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d (pidfd_open): %w", pid, err)
	}
	return &Process{fd}, nil
}

// Kill ends the process.
func (p *Process) Kill() { unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) }

// Close gives back what p has.
func (p *Process) Close() { unix.Close(p.fd) }
