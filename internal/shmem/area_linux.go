package shmem

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CreateArea makes an area of size bytes, all zero, which other processes open by the descriptor
// that it also returns. It takes no memory yet.
func CreateArea(name string, size int) (a *Area, fd int, err error) {
	fd, err = memfd(name)
	if err != nil {
		return nil, -1, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		a, err = mapArea(fd, size, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("shared memory of %d bytes: %w", size, err)
	}
	return a, fd, nil
}

// OpenArea maps the area behind a descriptor that another process sent, and takes the descriptor
// over. Like Open, it refuses one that is not sealed or has another size than want.
func OpenArea(fd, want int) (*Area, error) {
	defer unix.Close(fd)
	if err := checkSealed(fd, want); err != nil {
		return nil, err
	}
	return mapArea(fd, want, unix.MAP_SHARED)
}

// populatePause is how long Populate waits when the kernel is busy.
const populatePause = time.Millisecond

// Populate allocates the pages of b, near this thread. If the memory runs out it returns an error,
// where a touch would end the process. b has not been written yet. Populate calls stop between the
// steps and ends with its error; stop may be nil.
func Populate(b []byte, stop func() error) error {
	if len(b) == 0 {
		return nil
	}
	if stop == nil {
		stop = never
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
			time.Sleep(populatePause)
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

// Guard keeps the addresses of memory that something else has unmapped from
// being used again, so that a slice of it leads to a fault and never to other
// memory. If they are in use, nothing happens.
func Guard(b []byte) {
	if len(b) == 0 {
		return
	}
	page := uintptr(PageSize)
	p := unsafe.Pointer(unsafe.SliceData(b))
	// SAFETY: the range is only asked for where nothing is mapped; what there may
	// be at either end on a page of its own is left alone.
	skip := (page - uintptr(p)&(page-1)) & (page - 1)
	n := uintptr(len(b))
	if n < skip+page {
		return
	}
	p, n = unsafe.Add(p, skip), (n-skip)&^(page-1)
	got, err := unix.MmapPtr(-1, 0, p, n, unix.PROT_NONE, reserve|unix.MAP_FIXED_NOREPLACE)
	switch {
	case err != nil:
	case got != p: // a kernel before 4.17 takes the address as a hint
		_ = unix.MunmapPtr(got, n)
	default:
		guarded.add(p, n)
	}
}

// Space returns how many bytes are free in the file system of a folder.
func Space(dir string) (int64, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", dir, err)
		}
		return int64(st.Bavail) * int64(st.Bsize), nil
	}
}
