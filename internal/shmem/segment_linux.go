package shmem

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/topo"
)

// Supported reports whether this system has what the package needs.
const Supported = true

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create makes a segment of size bytes, all zero, without a name in the file system. It allocates
// all of it now, so that a full memory is an error here and never a fault later.
func Create(name string, size int) (*Segment, error) { return CreateSparse(name, size, size) }

// CreateSparse is Create for a segment of which only the first bytes are allocated now. The others must not
// be touched before Allocate.
func CreateSparse(name string, size, first int) (*Segment, error) {
	if err := fits(first); err != nil {
		return nil, err
	}
	fd, err := memfd(name, size, first)
	if err != nil {
		return nil, err
	}
	flags := unix.MAP_SHARED
	if first == size {
		flags |= unix.MAP_POPULATE
	}
	return mapSegment(fd, size, flags)
}

// fits returns an error if so much memory is not left: exceeding a limit ends processes.
func fits(size int) error {
	if free, from := topo.Room(os.DirFS("/")); free >= 0 && int64(size) > free {
		return fmt.Errorf("shared memory of %d bytes: %s leaves %d bytes; raise the limit or run fewer ranks", size, from, free)
	}
	return nil
}

// roomStep is how much memory must be left where less is allocated. To look is slow, so few allocations do.
const roomStep = 1 << 20

func allocate(fd, off, n int) error {
	for {
		if err := unix.Fallocate(fd, 0, int64(off), int64(n)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Allocate allocates n bytes from offset off on, for all processes that have the segment. Memory that is
// allocated already stays as it is.
func (s *Segment) Allocate(off, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.room {
		if err := fits(max(n, roomStep)); err != nil {
			return err
		}
		s.room = max(n, roomStep)
	}
	s.room -= n
	if err := allocate(s.fd, off, n); err != nil {
		return fmt.Errorf("shared memory of %d bytes: %w", n, err)
	}
	return nil
}

// OpenSparse maps the segment behind a descriptor that another process sent. It takes the descriptor over.
// A segment that is not sealed or of another size than want is refused: its owner could make every access
// fault.
func OpenSparse(fd, want int) (*Segment, error) {
	if err := checkSealed(fd, want); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return mapSegment(fd, want, unix.MAP_SHARED)
}

// checkSealed looks at a descriptor that another process sent.
func checkSealed(fd, want int) error {
	unix.CloseOnExec(fd)
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		return fmt.Errorf("shared memory received is not a sealed segment (seals %#x, %v)", got, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != int64(want) {
		return fmt.Errorf("shared memory received has %d bytes, want %d (%v)", st.Size, want, err)
	}
	return nil
}

func mapSegment(fd, size, flags int) (*Segment, error) {
	mem, err := mapArea(fd, size, flags)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Segment{mem: mem, fd: fd}, nil
}

// FD returns the descriptor to send to the other processes; -1 after CloseFD.
func (s *Segment) FD() int { return s.fd }

// CloseFD closes the descriptor; the mapping stays.
func (s *Segment) CloseFD() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}

// Close unmaps the segment. The memory is freed when the last process has done so or ended.
func (s *Segment) Close() error {
	s.CloseFD()
	if s.mem == nil {
		return nil
	}
	mem := s.mem
	s.mem = nil
	// SAFETY: the range is the segment's own, which nothing uses any more.
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}

// memfd makes memory without a name in the file system, of which nothing can be executed, allocates the first
// bytes, and seals its size. Where the system is set to have no other (vm.memfd_noexec=2), kernels 6.3 to 6.5
// want to be asked for that; those before do not know the flag.
func memfd(name string, size, first int) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil && first > 0 {
		err = allocate(fd, 0, first)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EFBIG) {
			return -1, fmt.Errorf("shared memory with addresses for %d bytes: %w; raise the limit on the size of files (ulimit -f)", size, err)
		}
		return -1, fmt.Errorf("shared memory of %d bytes: %w", cmp.Or(first, size), err)
	}
	return fd, nil
}
