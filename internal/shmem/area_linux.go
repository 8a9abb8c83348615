package shmem

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Anonymous maps size bytes, all zero, that belong to this process alone. Unlike those of a Segment, they take no
// memory until they are populated or touched. Unmap gives them back.
func Anonymous(size int) ([]byte, error) {
	return mapArea(-1, size, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// CreateArea maps size bytes, all zero, which other processes open by the descriptor that it also returns. They take no
// memory yet.
func CreateArea(name string, size int) (mem []byte, fd int, err error) {
	if fd, err = memfd(name, size, 0); err != nil {
		return nil, -1, err
	}
	if mem, err = mapArea(fd, size, unix.MAP_SHARED); err != nil {
		unix.Close(fd)
		return nil, -1, err
	}
	return mem, fd, nil
}

// OpenArea maps the area of another process, which has published the path of its descriptor. Like
// OpenSparse, it refuses one that is not sealed or has another size than want.
func OpenArea(path string, want int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		text := ""
		if errors.Is(err, unix.EMFILE) {
			text = "; raise the limit of open files (ulimit -n)"
		}
		return nil, fmt.Errorf("open the memory of another rank: %s: %w%s", path, err, text)
	}
	defer unix.Close(fd)
	if err := checkSealed(fd, want); err != nil {
		return nil, err
	}
	return mapArea(fd, want, unix.MAP_SHARED)
}

func mapArea(fd, size, flags int) ([]byte, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	if errors.Is(err, unix.ENOMEM) && guarded.trim(0, 0) {
		p, err = unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	}
	if err != nil {
		text := ""
		var r unix.Rlimit
		if errors.Is(err, unix.ENOMEM) && unix.Getrlimit(unix.RLIMIT_AS, &r) == nil && r.Cur != unix.RLIM_INFINITY {
			text = fmt.Sprintf(": the address space is limited to %d bytes; raise it (ulimit -v)", r.Cur)
		}
		return nil, fmt.Errorf("mapping %d bytes of shared memory: %w%s", size, err, text)
	}
	// SAFETY: the kernel has just mapped size bytes there, and only Unmap, or Segment.Close, takes them away.
	return unsafe.Slice((*byte)(p), size), nil
}

// Unmap gives the memory of an area back. Its addresses stay taken for as long as they can be (see Guard): a slice of
// it that the program has kept leads to a fault and never to other memory.
func Unmap(mem []byte) error {
	p, n := unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))
	// SAFETY: the range is the area's own; what was mapped there goes as the reservation
	// takes its place, in one step.
	if _, err := unix.MmapPtr(-1, 0, p, n, unix.PROT_NONE, reserve|unix.MAP_FIXED); err != nil {
		if err := unix.MunmapPtr(p, n); err != nil {
			return fmt.Errorf("unmapping %d bytes: %w", n, err)
		}
		return nil
	}
	guarded.add(mem)
	return nil
}

// Populate allocates the pages of b, near this thread. If the memory runs out it returns an error,
// where a touch would end the process. b has not been written yet. Populate calls stop between the
// steps and ends with its error.
func Populate(b []byte, stop func() error) error {
	if len(b) == 0 {
		return nil
	}
	page := uintptr(PageSize)
	// SAFETY: the pages that b lies in are mapped; the kernel is asked to provide
	// them and changes nothing in those that are there.
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	lo, hi := at&^(page-1), (at+uintptr(len(b))+page-1)&^(page-1)
	for done := uintptr(0); lo+done < hi; {
		if err := stop(); err != nil {
			return err
		}
		n := min(hi-lo-done, populateStep)
		_, _, e := unix.Syscall(unix.SYS_MADVISE, lo+done, n, unix.MADV_POPULATE_WRITE)
		switch {
		case e == unix.EINTR:
		case e == unix.EAGAIN: // the kernel is busy with these pages
			time.Sleep(time.Millisecond)
		case e == unix.EINVAL: // before Linux 5.14
			return touch(b, stop)
		case e == unix.EFAULT || e == unix.ENOMEM:
			return fmt.Errorf("memory ran out after %d of %d bytes", done, hi-lo)
		case e != 0:
			return fmt.Errorf("taking %d bytes of memory: %w", hi-lo, e)
		default:
			done += n
		}
	}
	return nil
}

// Guard keeps the addresses of memory that something else has unmapped from being used again, so that a
// slice of it leads to a fault and never to other memory. If they are in use, nothing happens.
func Guard(b []byte) {
	// SAFETY: the range is only asked for where nothing is mapped; what there may
	// be at either end on a page of its own is left alone.
	b = Aligned(b)
	if b = b[:len(b)&^(PageSize-1)]; len(b) == 0 {
		return
	}
	p, n := unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))
	got, err := unix.MmapPtr(-1, 0, p, n, unix.PROT_NONE, reserve|unix.MAP_FIXED_NOREPLACE)
	switch {
	case err != nil:
	case got != p: // a kernel before 4.17 takes the address as a hint
		_ = unix.MunmapPtr(got, n)
	default:
		guarded.add(b)
	}
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
	mu    sync.Mutex // guards the fields below
	list  [][]byte
	bytes uint64
}

// add takes a range in and gives the oldest ones back when there are too many.
func (r *ranges) add(mem []byte) {
	r.mu.Lock()
	r.list = append(r.list, mem)
	r.bytes += uint64(len(mem))
	r.mu.Unlock()
	r.trim(guardPieces, guardMost())
}

// trim gives the oldest ranges back while there are more of them, or of their
// bytes, and reports whether there were.
func (r *ranges) trim(pieces int, bytes uint64) (any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.list) > pieces || r.bytes > bytes {
		oldest := r.list[0]
		r.list = append(r.list[:0], r.list[1:]...)
		r.bytes -= uint64(len(oldest))
		// SAFETY: nothing is mapped there but the reservation.
		_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(oldest)), uintptr(len(oldest)))
		any = true
	}
	return any
}

// Space returns how many bytes are free in the file system of a folder.
func Space(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
