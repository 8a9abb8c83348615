package shmem

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"
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
	defer a.Close()
	o, err := NewExport(fd, 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Fetch(context.Background(), o.Name)
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	unix.Close(fd)
	b, err := OpenArea(got, size)
	if err != nil {
		t.Fatal(err)
	}
	a.Bytes()[5000] = 7
	if b.Bytes()[5000] != 7 || len(b.Bytes()) != size {
		t.Errorf("the other mapping of %d bytes has %d, want 7", len(b.Bytes()), b.Bytes()[5000])
	}
	if err := b.Close(); err != nil || b.Bytes() != nil {
		t.Errorf("Close: %v, %d bytes left", err, len(b.Bytes()))
	}
	if err := b.Close(); err != nil {
		t.Error("a second Close:", err)
	}
	if _, err := Fetch(context.Background(), o.Name); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("an export that was closed: %v", err)
	}
}

func TestFetchEnds(t *testing.T) {
	// No process answers: the listener takes no connection.
	name := fmt.Sprintf("@cohort-test/%d", os.Getpid())
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	if _, err := Fetch(ctx, name); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

// The others of a job ask at the same time, and are more than there is room for.
func TestFetchCrowded(t *testing.T) {
	a, fd, err := CreateArea("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer unix.Close(fd)
	name := fmt.Sprintf("@cohort-test/crowd/%d", os.Getpid())
	ln, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(ln, &unix.SockaddrUnix{Name: name}), unix.Listen(ln, 0)); err != nil {
		t.Fatal(err)
	}
	full := func() bool {
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(c) })
		return unix.Connect(c, &unix.SockaddrUnix{Name: name}) == unix.EAGAIN
	}
	for !full() {
	}
	const ranks = 5
	ctx, cancel := context.WithCancelCause(context.Background())
	fetched := make(chan error, ranks)
	for range ranks {
		go func() {
			got, err := Fetch(ctx, name)
			if err == nil {
				unix.Close(got)
			}
			fetched <- err
		}()
	}
	select {
	case err := <-fetched:
		t.Errorf("with no room to ask: %v", err)
		fetched <- err
	case <-time.After(50 * time.Millisecond): // it has time to give up, and takes none
	}
	why := errors.New("enough")
	cancel(why)
	for range ranks {
		if err := <-fetched; !errors.Is(err, why) {
			t.Errorf("ended: %v, want %v", err, why)
		}
	}
	for range ranks {
		go func() {
			got, err := Fetch(context.Background(), name)
			if err == nil {
				unix.Close(got)
			}
			fetched <- err
		}()
	}
	f := os.NewFile(uintptr(ln), "listener")
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	o := &Export{Name: name, ln: l.(*net.UnixListener), done: make(chan struct{})}
	go o.serve(fd, 100)
	for range ranks {
		if err := <-fetched; err != nil {
			t.Error("once there is room:", err)
		}
	}
	o.Close()
}

// A descriptor that arrives and cannot be opened is not reported as a withdrawn export.
func TestFetchNoDescriptor(t *testing.T) {
	a, fd, err := CreateArea("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer unix.Close(fd)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("@cohort-test/none/%d", os.Getpid())
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fetched := make(chan error, 1)
	go func() {
		_, err := Fetch(context.Background(), name)
		fetched <- err
	}()
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil)
	got := <-fetched
	unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if err != nil || !errors.Is(got, unix.EMFILE) || !strings.Contains(got.Error(), "ulimit -n") {
		t.Errorf("with no descriptor left: %v (sent: %v), want what limit to raise", got, err)
	}
}

func TestOpenAreaRefuses(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenArea(fd, 4096); err == nil {
		t.Error("memory that is not sealed was taken")
	}
	a, fd, err := CreateArea("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := OpenArea(fd, 8192); err == nil {
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

// TestKeptSlice checks that a slice of closed memory leads nowhere, also after
// much else has been mapped.
func TestKeptSlice(t *testing.T) {
	for name, make := range map[string]func() (*Area, error){
		"anonymous": func() (*Area, error) { return Anonymous(1 << 20) },
		"shared": func() (*Area, error) {
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
			kept := a.Bytes()
			if faults(kept) {
				t.Fatal("open memory faults")
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			for range 32 {
				other, err := Anonymous(1 << 20)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
			}
			if !faults(kept) {
				t.Error("a slice of closed memory can be read")
			}
		})
	}
}

func TestGuard(t *testing.T) {
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

// TestGuardsEnd checks that closed areas do not pile up.
func TestGuardsEnd(t *testing.T) {
	for range guardPieces + 100 {
		a, err := Anonymous(1)
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
	}
	guarded.mu.Lock()
	defer guarded.mu.Unlock()
	if len(guarded.list) > guardPieces || guarded.bytes > guardBytes {
		t.Errorf("%d closed areas of %d bytes are kept", len(guarded.list), guarded.bytes)
	}
}

func TestPopulate(t *testing.T) {
	const size = 8 << 20
	a, fd, err := CreateArea("test", size)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
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
	if err := Populate(a.Bytes()[size/2+17:size/2+18], nil); err != nil {
		t.Fatal(err)
	}
	if got := blocks(); got < 4096 || got > size/2 {
		t.Errorf("after one byte there are %d bytes of memory", got)
	}
	if err := Populate(a.Bytes(), nil); err != nil {
		t.Fatal(err)
	}
	if got := blocks(); got != size {
		t.Errorf("after all there are %d bytes of memory, want %d", got, size)
	}
}

// What takes its time is ended between two steps, whichever way the memory is had.
func TestPopulateStops(t *testing.T) {
	for name, populate := range map[string]func([]byte, func() error) error{"Populate": Populate, "touch": touch} {
		t.Run(name, func(t *testing.T) {
			a, fd, err := CreateArea("test", populateStep+3*PageSize)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			defer unix.Close(fd)
			why, asked := errors.New("enough"), 0
			err = populate(a.Bytes(), func() error {
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

// TestPopulateFull fills a file system, where a touch would end the process.
func TestPopulateFull(t *testing.T) {
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
	defer a.Close()
	if err := Populate(a.Bytes(), nil); err == nil || !strings.Contains(err.Error(), "memory ran out") {
		t.Errorf("got %v", err)
	}
}

func TestRoom(t *testing.T) {
	free, from := Room()
	if free <= 0 || from == "" {
		t.Errorf("Room: %d bytes by %q", free, from)
	}
}
