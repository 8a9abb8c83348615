//go:build linux || darwin

package shmem

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageSize is the unit in which memory is mapped.
var PageSize = unix.Getpagesize()

// Area is mapped memory that users hold slices of. Unlike that of a Segment, its
// pages are not there until they are populated or touched.
type Area struct {
	mu  sync.Mutex
	mem []byte
}

// Anonymous maps size bytes, all zero, that belong to this process alone.
func Anonymous(size int) (*Area, error) {
	return mapArea(-1, size, unix.MAP_PRIVATE|unix.MAP_ANON)
}

func mapArea(fd, size, flags int) (*Area, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	if errors.Is(err, unix.ENOMEM) && guarded.trim(0, 0) {
		p, err = unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	// SAFETY: the kernel has just mapped size bytes there, and only Close takes
	// them away.
	return &Area{mem: unsafe.Slice((*byte)(p), size)}, nil
}

// Bytes returns the memory, which begins on a page; nil after Close.
func (a *Area) Bytes() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mem
}

// Close gives the memory back. Its addresses stay taken for as long as they can
// be (see Guard): a slice of it that the program has kept leads to a fault and never
// to other memory.
func (a *Area) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mem == nil {
		return nil
	}
	p, n := unsafe.Pointer(unsafe.SliceData(a.mem)), uintptr(len(a.mem))
	a.mem = nil
	// SAFETY: the range is a's own; what was mapped there goes as the reservation
	// takes its place, in one step.
	if _, err := unix.MmapPtr(-1, 0, p, n, unix.PROT_NONE, reserve|unix.MAP_FIXED); err != nil {
		if err := unix.MunmapPtr(p, n); err != nil {
			return fmt.Errorf("unmapping %d bytes: %w", n, err)
		}
		return nil
	}
	guarded.add(p, n)
	return nil
}

const reserve = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE

// How much address space closed areas keep, and in how many pieces. It costs
// nothing else: a process has 128 TiB of it, and 65530 pieces by default. Where it
// is limited (ulimit -v) it is the heap's too, and a small part is kept.
const (
	guardBytes  = min(1<<40, uint64(^uintptr(0))/guardPart)
	guardPieces = 4096
	guardPart   = 16
)

func guardMost() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &l); err != nil || l.Cur > guardPart*guardBytes {
		return guardBytes
	}
	return l.Cur / guardPart
}

// guarded are the ranges of closed areas that have not been given back.
var guarded ranges

type ranges struct {
	mu    sync.Mutex
	list  []span
	bytes uint64
}

type span struct {
	p unsafe.Pointer
	n uintptr
}

// add takes a range in and gives the oldest ones back when there are too many.
func (r *ranges) add(p unsafe.Pointer, n uintptr) {
	r.mu.Lock()
	r.list = append(r.list, span{p, n})
	r.bytes += uint64(n)
	r.mu.Unlock()
	r.trim(guardPieces, guardMost())
}

// trim gives the oldest ranges back while there are more of them, or of their
// bytes, and reports whether there were.
func (r *ranges) trim(pieces int, bytes uint64) (any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.list) > pieces || r.bytes > bytes {
		s := r.list[0]
		r.list = append(r.list[:0], r.list[1:]...)
		r.bytes -= uint64(s.n)
		// SAFETY: nothing is mapped there but the reservation.
		_ = unix.MunmapPtr(s.p, s.n)
		any = true
	}
	return any
}
