package shmem

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

func TestAreaBetweenProcesses(t *testing.T) {
	const size = 3 << 12
	a, fd, err := CreateArea("test", size)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(a)
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	b, err := OpenArea(path, size)
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	a[5000] = 7
	if b[5000] != 7 || len(b) != size {
		t.Errorf("the other mapping of %d bytes has %d, want 7", len(b), b[5000])
	}
	if err := Unmap(b); err != nil {
		t.Error("Unmap:", err)
	}
	if _, err := OpenArea(path, size); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an area whose descriptor is closed: %v", err)
	}
}

// TestOpenAreaWithoutDescriptors checks that the error names the limit to raise.
func TestOpenAreaWithoutDescriptors(t *testing.T) {
	a, fd, err := CreateArea("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(a)
	defer unix.Close(fd)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = OpenArea(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), 4096)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("with no descriptor left: %v, want what limit to raise", err)
	}
}

func TestOpenAreaRefuses(t *testing.T) {
	path := func(fd int) string {
		t.Cleanup(func() { unix.Close(fd) })
		return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	}
	fd, err := unix.MemfdCreate("test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenArea(path(fd), 4096); err == nil {
		t.Error("memory that is not sealed was taken")
	}
	a, fd, err := CreateArea("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(a)
	if _, err := OpenArea(path(fd), 8192); err == nil {
		t.Error("memory of another size was taken")
	}
}

// faults reports whether reading b[0] faults.
func faults(b []byte) (yes bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { yes = recover() != nil }()
	sink = b[0]
	return false
}

var sink byte

// TestSliceOfClosedMemoryFaults checks that a slice of closed memory leads nowhere, also after
// much else has been mapped.
func TestSliceOfClosedMemoryFaults(t *testing.T) {
	for name, make := range map[string]func() ([]byte, error){
		"anonymous": func() ([]byte, error) { return Anonymous(1 << 20) },
		"shared": func() ([]byte, error) {
			a, fd, err := CreateArea("test", 1<<20)
			unix.Close(fd)
			return a, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := make()
			if err != nil {
				t.Fatal(err)
			}
			kept := a
			if faults(kept) {
				t.Fatal("open memory faults")
			}
			if err := Unmap(a); err != nil {
				t.Fatal(err)
			}
			for range 32 {
				other, err := Anonymous(1 << 20)
				if err != nil {
					t.Fatal(err)
				}
				defer Unmap(other)
			}
			if !faults(kept) {
				t.Error("a slice of closed memory can be read")
			}
		})
	}
}

func TestGuardKeepsUnusedAddresses(t *testing.T) {
	p, err := unix.MmapPtr(-1, 0, nil, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	mem := unsafe.Slice((*byte)(p), 1<<16)
	Guard(mem) // in use: nothing happens
	mem[0] = 1
	if err := unix.MunmapPtr(p, 1<<16); err != nil {
		t.Fatal(err)
	}
	Guard(mem[100:])
	if !faults(mem[4096:]) {
		t.Error("guarded memory can be read")
	}
	q, err := unix.MmapPtr(-1, 0, p, 1<<16, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED_NOREPLACE)
	if err == nil {
		unix.MunmapPtr(q, 1<<16)
		t.Error("guarded addresses could be taken")
	}
}

// TestClosedAreasDoNotPileUp checks that closed areas do not pile up.
func TestClosedAreasDoNotPileUp(t *testing.T) {
	for range guardPieces + 100 {
		a, err := Anonymous(1)
		if err != nil {
			t.Fatal(err)
		}
		Unmap(a)
	}
	guarded.mu.Lock()
	defer guarded.mu.Unlock()
	if len(guarded.list) > guardPieces || guarded.bytes > guardBytes {
		t.Errorf("%d closed areas of %d bytes are kept", len(guarded.list), guarded.bytes)
	}
}

// goOn lets Populate go on.
func goOn() error { return nil }

func TestPopulateAllocatesWhatIsAskedFor(t *testing.T) {
	const size = 8 << 20
	a, fd, err := CreateArea("test", size)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(a)
	defer unix.Close(fd)
	blocks := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if got := blocks(); got != 0 {
		t.Errorf("a new area has %d bytes of memory", got)
	}
	if err := Populate(a[size/2+17:size/2+18], goOn); err != nil {
		t.Fatal(err)
	}
	if got := blocks(); got < 4096 || got > size/2 {
		t.Errorf("after one byte there are %d bytes of memory", got)
	}
	if err := Populate(a, goOn); err != nil {
		t.Fatal(err)
	}
	if got := blocks(); got != size {
		t.Errorf("after all there are %d bytes of memory, want %d", got, size)
	}
}

// Both ways to populate memory can be ended between two steps.
func TestPopulateCanBeEnded(t *testing.T) {
	for name, populate := range map[string]func([]byte, func() error) error{"Populate": Populate, "touch": touch} {
		t.Run(name, func(t *testing.T) {
			a, fd, err := CreateArea("test", populateStep+3*PageSize)
			if err != nil {
				t.Fatal(err)
			}
			defer Unmap(a)
			defer unix.Close(fd)
			why, asked := errors.New("enough"), 0
			err = populate(a, func() error {
				if asked++; asked == 2 {
					return why
				}
				return nil
			})
			var st unix.Stat_t
			if err2 := unix.Fstat(fd, &st); err2 != nil {
				t.Fatal(err2)
			}
			if !errors.Is(err, why) || asked != 2 || st.Blocks*512 != populateStep {
				t.Errorf("got %v after %d questions with %d bytes of memory, want %v after 2 with %d", err, asked, st.Blocks*512, why, populateStep)
			}
		})
	}
}

// TestPopulateFailsOnFullFileSystem fills a file system, where a touch would end the process.
func TestPopulateFailsOnFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		need.MissingRight(t, "no file system of limited size can be mounted here, which takes root: %v", err)
	}
	defer unix.Unmount(dir, 0)
	if free, err := Space(dir); err != nil || free != 1<<20 {
		t.Errorf("Space: %d, %v; want %d", free, err, 1<<20)
	}
	f, err := os.Create(dir + "/full")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4 << 20); err != nil {
		t.Fatal(err)
	}
	a, err := mapArea(int(f.Fd()), 4<<20, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(a)
	if err := Populate(a, goOn); err == nil || !strings.Contains(err.Error(), "memory ran out") {
		t.Errorf("got %v", err)
	}
}
