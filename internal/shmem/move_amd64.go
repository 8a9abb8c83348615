//go:build !race

package shmem

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:noescape
func move(dst, src *byte, n uintptr)

// moveMin is the shortest length that the processor's string move is faster for.
const moveMin = 4 << 10

var stringMove = cpu.X86.HasERMS

// Move is copy for buffers that do not overlap. It takes the processor's string move for long ones, which
// does not fetch the lines that it overwrites from another core's cache.
func Move(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < moveMin || !stringMove {
		return copy(dst, src)
	}
	move(unsafe.SliceData(dst), unsafe.SliceData(src), uintptr(n))
	return n
}
