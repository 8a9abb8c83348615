package main

import (
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// TestRunTCPOverIPv6 runs a job whose ranks talk to each other over IPv6.
func TestRunTCPOverIPv6(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback address: %v", err)
	}
	l.Close()
	t.Setenv("COHORT_TCP_IFACE", "::1")
	t.Setenv("COHORT_TCP_SHM", "0")
	job6(t, func(cmd *exec.Cmd) (int, string, string) { return finish(t, cmd) })
}

// TestRunTCPWithoutIPv4 runs one where there is no IPv4 at all: the ranks meet by IPv6 too.
func TestRunTCPWithoutIPv4(t *testing.T) {
	// A goroutine in its own network namespace, whose thread ends with it. Processes that it starts are in the
	// namespace too.
	type ended struct {
		status         int
		stdout, stderr string
	}
	todo, done, ready := make(chan *exec.Cmd), make(chan ended), make(chan error)
	go func() {
		defer close(done) // also where finish ends the goroutine
		runtime.LockOSThread()
		err := only6()
		ready <- err
		for cmd := range todo {
			var e ended
			e.status, e.stdout, e.stderr = finish(t, cmd)
			done <- e
		}
	}()
	defer close(todo)
	if err := <-ready; err != nil {
		need.MissingRight(t, "no network without IPv4 can be made here, which takes root: %v", err)
	}
	t.Setenv("COHORT_TCP_SHM", "0")
	job6(t, func(cmd *exec.Cmd) (int, string, string) {
		todo <- cmd
		e := <-done
		return e.status, e.stdout, e.stderr
	})
}

// only6 puts this thread into a network of which ::1 is the only address.
func only6() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOOPBACK)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, up); err != nil {
		return err
	}
	none, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := none.SetInet4Addr([]byte{0, 0, 0, 0}); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCSIFADDR, none); err != nil { // the kernel has given it 127.0.0.1
		return err
	}
	l, err := net.Listen("tcp6", "[::1]:0") // in this thread
	if err != nil {
		return err
	}
	return l.Close()
}

// job6 runs a job by a function that runs a command.
func job6(t *testing.T, run func(*exec.Cmd) (status int, stdout, stderr string)) {
	t.Helper()
	status, stdout, stderr := run(cohortCommand(t, hello(t, "run", "-n", "3", "--backend", "tcp")...))
	if status != 0 || strings.Count(stdout, " of 3 (backend tcp): the sum is 6\n") != 3 {
		t.Errorf("status %d\nstdout:\n%s\nstderr:\n%s", status, stdout, stderr)
	}
}
