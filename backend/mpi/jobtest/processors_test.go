//go:build cgo && linux

package jobtest

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort"
)

// TestBoundRankHasTwoProcessors checks that GOMAXPROCS is 2 on a rank that is bound to one processor
// while its world is open, and the program's own value before and after.
func TestBoundRankHasTwoProcessors(t *testing.T) {
	program("bound", func() error {
		if runtime.NumCPU() > 1 {
			return bindAndRestart()
		}
		var open int
		err := with(func(*cohort.Comm) error {
			open = runtime.GOMAXPROCS(0)
			return nil
		})
		say("open %d closed %d", open, runtime.GOMAXPROCS(0))
		return err
	})
	inLibraries(t, func(t *testing.T, name string) {
		start(t, name, 1, "bound").must(t).has(t, "open 2 closed 1\n")
		start(t, name, 1, "bound", "GOMAXPROCS=1").must(t).has(t, "open 1 closed 1\n")
	})
}

// bindAndRestart starts the program of this process again, on one of its processors.
func bindAndRestart() error {
	runtime.LockOSThread() // exec keeps the binding of the calling thread
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}
