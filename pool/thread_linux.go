package pool

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/word"
	"github.com/cohort-hpc/cohort/topo"
)

const (
	canPin  = true
	maxCPUs = 8192 // the kernel's own limit
)

// bell lets a thread sleep while a word is 1. It uses the kernel (futex) instead of Go's scheduler,
// which would wake a locked thread through another thread and take twice as long.
type bell struct{}

func (bell) prepare()            {}
func (bell) wait(w *word.Uint32) { word.FutexWait(w, 1, 0) }
func (bell) ring(w *word.Uint32) { word.FutexWake(w, 1) }

// identity distinguishes goroutines that are locked to their threads.
type identity int

// self returns the identity of the calling goroutine, if it is locked.
func self() identity { return identity(unix.Gettid()) }

// onMainThread reports whether the caller runs on the process's first thread. That thread does not
// end with a goroutine that is locked to it.
func onMainThread() bool { return unix.Gettid() == os.Getpid() }

// nameThread names the calling thread for top and ps; failures do not matter.
func nameThread(name string) {
	os.WriteFile("/proc/thread-self/comm", []byte(name), 0)
}

func members(set unix.CPUSetDynamic) (cpus topo.CPUSet) {
	for c := range maxCPUs {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus
}

// pin binds the calling thread to processors. The kernel ignores processors that this process may
// not use; pin returns an error for them.
func pin(cpus []int) error {
	set := unix.NewCPUSet(maxCPUs)
	for _, c := range cpus {
		set.Set(c)
	}
	want := members(set)
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("this process may use none of the processors %s", want)
		}
		return fmt.Errorf("pin to processors %s: %w", want, err)
	}
	set.Zero() // the kernel fills in only as many as it has
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("read the affinity mask: %w", err)
	}
	if got := members(set); len(got) != len(want) {
		return fmt.Errorf("of processors %s this process may use only %s", want, got)
	}
	return nil
}

// localMemory makes the kernel allocate the calling thread's memory in the NUMA domain it runs on,
// whatever policy the process was started with (numactl).
func localMemory() error {
	err := unix.SetMemPolicy(unix.MPOL_LOCAL, nil)
	if err != nil && !errors.Is(err, unix.ENOSYS) { // a kernel without NUMA has one domain
		return fmt.Errorf("set_mempolicy: %w", err)
	}
	return nil
}
