package netlab

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// nested marks a process that Need has started in a user namespace.
const nested = "NETLAB_NESTED"

// Need reports whether this process can make networks. If it cannot, Need runs the test again as root of
// a user namespace, takes over that result, and returns false: the caller returns. Without user
// namespaces the test is skipped.
//
// If all requirements of tests must be met (internal/test/need), a failure as root fails the test.
func Need(t testing.TB) bool {
	t.Helper()
	n, err := New(Config{Hosts: 1})
	if err == nil {
		n.Close()
		return true
	}
	switch {
	case !errors.Is(err, ErrUnavailable) || need.Required() && os.Getuid() == 0:
		t.Fatal(err)
	case os.Getenv(nested) != "":
		t.Skipf("also as root of a user namespace: %v", err)
	}
	exe, errExe := os.Executable()
	if errExe != nil {
		t.Fatal(errExe)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	args := []string{"-test.run=^" + name + "$"}
	for _, a := range os.Args[1:] {
		if !strings.HasPrefix(a, "-test.run") && !strings.HasPrefix(a, "-test.testlogfile") && !strings.HasPrefix(a, "-test.coverprofile") {
			args = append(args, a)
		}
	}
	cmd := exec.Command(exe, append(args, "-test.v")...)
	cmd.Env = append(os.Environ(), nested+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err2 := cmd.CombinedOutput()
	switch text := string(out); {
	case err2 != nil && cmd.Process == nil:
		t.Skipf("%v; and no user namespace: %v", err, err2)
	case err2 != nil:
		t.Errorf("as root of a user namespace: %v\n%s", err2, text)
	case strings.Contains(text, "--- SKIP: "+name):
		t.Skip(text)
	default:
		t.Logf("as root of a user namespace:\n%s", text)
	}
	return false
}
