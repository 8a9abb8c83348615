package shmem

import (
	"fmt"
	"sync"
	"unsafe"
)

// Segment is a mapping of shared memory. Its size never changes: the file
// behind it is sealed, so that access inside the mapping cannot fault.
type Segment struct {
	mem  []byte
	mu   sync.Mutex // guards the fields below; fd not at the start
	fd   int
	room int // bytes that are left, and not allocated by this process, as of the last look
}

// At returns the T at offset off of the segment. T must be free of Go pointers.
// It panics if T does not lie inside the segment or off is not aligned for it:
// offsets come from the layout, never from shared memory.
//
// The pointer is valid until the segment is closed.
func At[T any](s *Segment, off int) *T {
	var p *T // not a T, which could be long
	if off < 0 || off > len(s.mem)-int(unsafe.Sizeof(*p)) || uintptr(off)%unsafe.Alignof(*p) != 0 {
		panic(fmt.Sprintf("shmem: offset %d of %T outside a segment of %d bytes or unaligned", off, p, len(s.mem)))
	}
	// SAFETY: the range was checked, and the mapping outlives its users: it is
	// unmapped only by Close, after the last operation.
	return (*T)(unsafe.Pointer(&s.mem[off]))
}

// Slice returns n values of type T that begin at offset off. The conditions of At apply.
func Slice[T any](s *Segment, off, n int) []T {
	if n == 0 {
		return nil
	}
	var p *T
	if n < 0 || off < 0 || n > (len(s.mem)-off)/max(1, int(unsafe.Sizeof(*p))) {
		panic(fmt.Sprintf("shmem: %d of %T at offset %d outside a segment of %d bytes", n, p, off, len(s.mem)))
	}
	// SAFETY: as in At, for n consecutive values.
	return unsafe.Slice(At[T](s, off), n)
}

// Addr returns the address of b's first byte, 0 for an empty b, to be given to another process for
// ReadProcess and WriteProcess. The caller keeps b alive and in place for as long as the other process
// may use it: b must be on the heap, which does not move.
func Addr(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	// SAFETY: only a number leaves; nothing here dereferences it.
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
