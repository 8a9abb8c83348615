package cohorttest

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopProcess stops a process. Of this one it returns when somebody has continued it: a signal to the
// process can be taken by another thread, and on a busy machine stop this one when nobody waits to
// continue it any more.
func stopProcess(pid int) error {
	if pid != os.Getpid() {
		return syscall.Kill(pid, syscall.SIGSTOP)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(pid, unix.Gettid(), syscall.SIGSTOP)
}

func continueProcess(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }

// limitMemory has this process get no more address space than it has, or little. On other systems the error is
// errors.ErrUnsupported.
func limitMemory() error {
	const enough = 1 << 20 // less than any process has
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &had); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: enough, Max: had.Max})
}
