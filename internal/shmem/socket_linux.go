package shmem

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadNow reads into a, and then b, from a descriptor that does not wait. Either may be empty.
func ReadNow(fd int, a, b []byte) (int, error) {
	return transfer(unix.SYS_READ, unix.SYS_READV, fd, a, b)
}

// WriteNow writes a, and then b, to a descriptor that does not wait. Either may be empty.
func WriteNow(fd int, a, b []byte) (int, error) {
	return transfer(unix.SYS_WRITE, unix.SYS_WRITEV, fd, a, b)
}

// transfer reads or writes one slice, or two. The scheduler is not told of the call, which does not wait: it would
// otherwise give the processor that this goroutine has to another thread after 20 µs, and have to get it back.
func transfer(one, two uintptr, fd int, a, b []byte) (int, error) {
	if len(a) == 0 {
		a, b = b, nil
	}
	var n uintptr
	var e syscall.Errno
	// SAFETY: the kernel uses the slices during the call only.
	if p := unsafe.SliceData(a); len(b) == 0 {
		n, _, e = syscall.RawSyscall(one, uintptr(fd), uintptr(unsafe.Pointer(p)), uintptr(len(a)))
	} else {
		v := [2]unix.Iovec{{Base: p}, {Base: unsafe.SliceData(b)}}
		v[0].SetLen(len(a))
		v[1].SetLen(len(b))
		n, _, e = syscall.RawSyscall(two, uintptr(fd), uintptr(unsafe.Pointer(&v)), 2)
	}
	if e != 0 {
		return -1, e
	}
	return int(n), nil
}
