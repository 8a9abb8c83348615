package shmem

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// noExec says for the processes of this one's PID namespace that memory without a name must not be
// executable.
const noExec = "/proc/sys/vm/memfd_noexec"

// createNoExec makes both kinds of memory where none may be executable. It is called in a PID namespace
// of its own.
func createNoExec() error {
	if err := os.WriteFile(noExec, []byte("2"), 0); err != nil {
		return fmt.Errorf("not set: %w", err)
	}
	if fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_EXEC); err != unix.EACCES {
		unix.Close(fd)
		return fmt.Errorf("memory that may be executable: %v, want %v", err, unix.EACCES)
	}
	s, err := Create("test", 4096)
	if err != nil {
		return err
	}
	defer s.Close()
	a, fd, err := CreateArea("test", 4096)
	if err != nil {
		return err
	}
	defer Unmap(a)
	defer unix.Close(fd)
	return nil
}

// isNoExec returns an error unless memory can never be made executable.
func isNoExec(fd int) error {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || got&unix.F_SEAL_EXEC == 0 {
		return fmt.Errorf("memory that may be executable: seals %#x, %v", got, err)
	}
	return nil
}

// Where the system allows no memory that can be executed, there is memory.
func TestMemoryExistsWhereNoneMayBeExecuted(t *testing.T) {
	if _, err := os.Stat(noExec); err != nil {
		t.Skipf("this kernel is older than 6.3 and has no such setting: %v", err)
	}
	s, err := Create("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, fd, err := CreateArea("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(a)
	defer unix.Close(fd)
	// Kernels 6.3 to 6.5 refuse to make memory for which this is not asked; later ones set it themselves.
	if err := errors.Join(isNoExec(s.FD()), isNoExec(fd)); err != nil {
		t.Error(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHMEM_TEST=noexec")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} // the setting is that of the namespace
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "not set: ") {
		need.MissingRight(t, "no PID namespace with settings of its own can be made here, which takes root: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
