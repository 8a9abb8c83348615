package shmem

import "unsafe"

// Pause hints to the core that the caller is spinning.
func Pause()

//go:noescape
func move(dst, src *byte, n uintptr)

// Move copies src to dst, which do not overlap and have one length, in the way
// that is best for long buffers that are not read again soon: the processor's
// string move does not fetch the lines that it overwrites.
func Move(dst, src []byte) {
	if n := min(len(dst), len(src)); n > 0 {
		move(unsafe.SliceData(dst), unsafe.SliceData(src), uintptr(n))
	}
}
