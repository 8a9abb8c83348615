package shmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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
	fd, err := memfd(name)
	if err != nil {
		return nil, err
	}
	err = unix.Ftruncate(fd, int64(size))
	if err == nil {
		err = allocate(fd, 0, first)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("shared memory of %d bytes: %w", first, err)
	}
	return mapSegment(fd, size, first)
}

// fits returns an error if so much memory is not left: exceeding a limit ends processes.
func fits(size int) error {
	if free, from := Room(); free >= 0 && int64(size) > free {
		return fmt.Errorf("shared memory of %d bytes: %s leaves %d bytes; raise the limit or run fewer ranks", size, from, free)
	}
	return nil
}

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
	if err := fits(n); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := allocate(s.fd, off, n); err != nil {
		return fmt.Errorf("shared memory of %d bytes: %w", n, err)
	}
	return nil
}

// Open maps the segment behind a descriptor that another process sent. It takes
// the descriptor over. A segment that is not sealed or of another size than
// want is refused: its owner could make every access fault.
func Open(fd, want int) (*Segment, error) { return OpenSparse(fd, want, want) }

// OpenSparse is Open for a segment that CreateSparse has made.
func OpenSparse(fd, want, first int) (*Segment, error) {
	if err := checkSealed(fd, want); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return mapSegment(fd, want, first)
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

// mapSegment maps a segment, and the pages of its first bytes now.
func mapSegment(fd, size, first int) (*Segment, error) {
	flags := unix.MAP_SHARED
	if first == size {
		flags |= unix.MAP_POPULATE
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		unix.Close(fd)
		var r unix.Rlimit
		if err == unix.ENOMEM && unix.Getrlimit(unix.RLIMIT_AS, &r) == nil && r.Cur != unix.RLIM_INFINITY {
			return nil, fmt.Errorf("mapping %d bytes of shared memory: %w: the address space is limited to %d bytes; raise it (ulimit -v)", size, err, r.Cur)
		}
		return nil, fmt.Errorf("mapping %d bytes of shared memory: %w", size, err)
	}
	if first < size {
		_ = unix.Madvise(mem[:first], unix.MADV_POPULATE_WRITE) // from Linux 5.14 on; otherwise when they are touched
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

// Close unmaps the segment. The memory is freed when the last process has done
// so or ended.
func (s *Segment) Close() error {
	s.CloseFD()
	if s.mem == nil {
		return nil
	}
	mem := s.mem
	s.mem = nil
	return unix.Munmap(mem)
}

// Room returns how many bytes of memory are available, and the file that limits them: the tightest
// of the machine's memory and the control groups. It returns -1 if nothing is known.
func Room() (free int64, from string) {
	free, from, ok := headroom()
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			v, found := strings.CutPrefix(line, "MemAvailable:")
			if !found {
				continue
			}
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			if err == nil && (!ok || kib<<10 < free) {
				free, from, ok = kib<<10, "MemAvailable in /proc/meminfo", true
			}
		}
	}
	if !ok {
		return -1, ""
	}
	return max(free, 0), from
}

// headroom returns how many bytes the tightest cgroup memory limit above this process still allows,
// and the file that holds it. Exceeding such a limit ends the process, so it must be known before
// memory is touched.
func headroom() (free int64, from string, ok bool) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, "", false
	}
	for line := range strings.Lines(string(b)) {
		// hierarchy:controllers:path; version 2 has no controllers
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		root, limit, used, cache := "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
		if f[1] != "" {
			if !slices.Contains(strings.Split(f[1], ","), "memory") {
				continue
			}
			root, limit, used, cache = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		}
		for dir := filepath.Join(root, f[2]); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
			most, err1 := readInt(filepath.Join(dir, limit))
			now, err2 := readInt(filepath.Join(dir, used))
			if err1 != nil || err2 != nil {
				continue // no limit here, "max" included
			}
			if reclaim, err := statField(filepath.Join(dir, "memory.stat"), cache); err == nil {
				now -= reclaim // the kernel gives page cache back before it refuses
			}
			if left := most - now; !ok || left < free {
				free, from, ok = left, filepath.Join(dir, limit), true
			}
		}
	}
	return free, from, ok
}

func readInt(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

func statField(file, name string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no field %s", file, name)
}
