package shmem

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilesCountsWhatMayBeOpened lowers the limit of open files to what is open, and a few more.
func TestFilesCountsWhatMayBeOpened(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	// The lowest free number: with the limit there nothing can be opened, and every one above it that
	// is free is one that can.
	free := func() int {
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		return fd
	}
	highest := 0
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		var fd int
		fmt.Sscan(e.Name(), &fd)
		highest = max(highest, fd)
	}
	var holes []int // filled, so that what is free is above all
	for free() <= highest {
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		holes = append(holes, fd)
	}
	defer func() {
		for _, fd := range holes {
			unix.Close(fd)
		}
	}()
	at := free()
	for _, c := range []struct{ room, n int }{{0, 1}, {3, 4}, {3, 3}, {3, 0}, {5, 9}} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(at + c.room), Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		err := Files(c.n, "this test")
		unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
		if c.n <= c.room {
			if err != nil {
				t.Errorf("%d files, where %d can be opened: %v", c.n, c.room, err)
			}
			continue
		}
		want := fmt.Sprintf("this test takes %d more, and %d can be opened; the limit is %d: raise it with ulimit -n %d",
			c.n, c.room, at+c.room, at+c.n)
		if !errors.Is(err, unix.EMFILE) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d files, where %d can be opened: %v, want %q", c.n, c.room, err, want)
		}
		if free() != at {
			t.Errorf("%d files, where %d can be opened: some are left open", c.n, c.room)
		}
	}
}
