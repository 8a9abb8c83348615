//go:build linux && (amd64 || arm64) && !cohort_nocuda

package cuda

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// bind loads the library by the first of names that is there, and finds its functions. It stays
// loaded: its threads and what it knows of devices are the process's from here on. The caller holds
// its thread (sheltered), because the dynamic linker keeps the reason of a failure for that one.
func bind(names []string) (*library, error) {
	var missing error
	for _, name := range names {
		if strings.Contains(name, "/") {
			if _, err := os.Stat(name); err != nil {
				if missing == nil {
					missing = err
				}
				continue
			}
		}
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			if missing == nil || os.IsNotExist(missing) {
				missing = err // that of a library which is there, rather than of one that is not
			}
			continue
		}
		l := &library{name: name}
		for f, symbol := range symbols {
			at, err := purego.Dlsym(handle, symbol)
			if err != nil {
				return nil, fmt.Errorf("%s has no %s: it is too old, or no driver of NVIDIA's", name, symbol)
			}
			l.at[f] = at
		}
		return l, nil
	}
	if missing == nil {
		missing = fs.ErrNotExist
	}
	return nil, fmt.Errorf("the driver's library is not there: %w", missing)
}

// sheltered calls f, in which the library may start threads, so that they do not take the process's
// signals: one that arrives on a thread that is not Go's, and that nobody asks for, ends the process.
func sheltered(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var held, before unix.Sigset_t
	held.Val[0] = ^uint64(0)
	for _, s := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGSYS,
		32, 33} { // what a thread causes itself, and the C library's own
		held.Val[0] &^= 1 << (s - 1)
	}
	if unix.PthreadSigmask(unix.SIG_SETMASK, &held, &before) == nil {
		defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	}
	f()
}

// call calls a function. Arguments that are addresses of Go's memory are made in the call's own
// expression, as those of syscall.Syscall.
//
// SAFETY: uintptrescapes has the compiler keep what such arguments point to where it is, and alive,
// until the function returns. The caller answers for the number and the sizes of the arguments.
//
//go:uintptrescapes
func (l *library) call(f function, args ...uintptr) result {
	r, _, _ := purego.SyscallN(l.at[f], args...)
	return result(int32(r))
}
