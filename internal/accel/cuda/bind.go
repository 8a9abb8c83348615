//go:build linux && (amd64 || arm64) && !cohort_nocuda

package cuda

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// bind loads the first library of names that can be loaded, and looks up its functions. The library is
// never unloaded, because the process uses its threads and its state of devices. The caller is
// locked to its thread (by withSignalsBlocked), because the dynamic linker keeps errors per thread.
func bind(names []string) (*library, error) {
	var errs []string
	for _, name := range names {
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		l := &library{name: name, at: make(map[function]uintptr)}
		for _, f := range functions {
			at, err := purego.Dlsym(handle, string(f))
			if err != nil {
				return nil, fmt.Errorf("%s has no function %s: it is too old, or not NVIDIA's driver", name, string(f))
			}
			l.at[f] = at
		}
		return l, nil
	}
	return nil, fmt.Errorf("cannot load the driver's library: %s", strings.Join(errs, "; "))
}

// withSignalsBlocked calls f with signals blocked, so that threads that the library starts in f do
// not receive the process's signals. Such a signal on a thread without a handler would end the
// process.
func withSignalsBlocked(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var held, before unix.Sigset_t
	held.Val[0] = ^uint64(0)
	for _, s := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGSYS,
		32, 33} { // raised by the thread itself, or used by the C library
		held.Val[0] &^= 1 << (s - 1)
	}
	if unix.PthreadSigmask(unix.SIG_SETMASK, &held, &before) == nil {
		defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	}
	f()
}

// call calls a function. Arguments that are addresses of Go memory must be converted in the call
// expression, as for syscall.Syscall.
//
// SAFETY: with uintptrescapes the compiler keeps the memory of such arguments in place and alive
// until the function returns. The caller guarantees the number and sizes of the arguments.
//
//go:uintptrescapes
func (l *library) call(f function, args ...uintptr) result {
	r, _, _ := purego.SyscallN(l.at[f], args...)
	return result(int32(r))
}
