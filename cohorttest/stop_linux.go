package cohorttest

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopProcess stops a process. For this process it returns when another process has
// continued it. The signal goes to this thread: another thread might take it later, when no
// process waits to continue this one any more.
func stopProcess(pid int) error {
	if pid != os.Getpid() {
		return syscall.Kill(pid, syscall.SIGSTOP)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(pid, unix.Gettid(), syscall.SIGSTOP)
}

func continueProcess(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }

// limitMemory limits the address space of this process to about what it has. On other
// systems it returns errors.ErrUnsupported.
func limitMemory() error {
	const enough = 1 << 20 // less than any process has
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &had); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: enough, Max: had.Max})
}
