package pool

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/topo"
)

const (
	canPin  = true
	maxCPUs = 8192 // the kernel's own limit
)

// parker is where one thread sleeps and others wake it. In the kernel, and not in
// Go's scheduler: a locked thread that the scheduler wakes is woken by way of
// another one, and that takes twice as long.
type parker struct{ word atomic.Uint32 }

// announce records that the thread is about to sleep. It checks once more whether it
// has to after that, so that who makes it unnecessary before sees to a wake.
func (k *parker) announce() { k.word.Store(1) }

// withdraw takes that back, and reports whether nobody was faster with a wake.
func (k *parker) withdraw() bool { return k.word.CompareAndSwap(1, 0) }

// sleep returns after wake.
func (k *parker) sleep() {
	for k.asleep() { // a signal may end a wait
		shmem.FutexWait(&k.word, 1, 0)
	}
}

// asleep reports whether the thread sleeps or is about to.
func (k *parker) asleep() bool { return k.word.Load() == 1 }

// wake wakes the thread if it sleeps or is about to, and reports whether it did.
func (k *parker) wake() bool {
	if !k.asleep() || !k.word.CompareAndSwap(1, 0) {
		return false
	}
	shmem.FutexWake(&k.word, 1)
	return true
}

// identity distinguishes goroutines that are locked to their threads.
type identity int

// self returns the calling goroutine's, if it is locked.
func self() identity { return identity(unix.Gettid()) }

// onMainThread reports whether the caller runs on the thread the process began
// with. That one does not end with a goroutine that is locked to it.
func onMainThread() bool { return unix.Gettid() == os.Getpid() }

// nameThread gives the calling thread a name for top and ps; it is no matter if
// that fails.
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

// pin ties the calling thread to processors. The kernel takes those that are
// there; that these are not all is an error too.
func pin(cpus []int) error {
	set := unix.NewCPUSet(maxCPUs)
	for _, c := range cpus {
		set.Set(c)
	}
	want := members(set)
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("none of the processors %s is there for this process", want)
		}
		return fmt.Errorf("pinning to the processors %s: %w", want, err)
	}
	set.Zero() // the kernel fills in as many as it has
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("reading the affinity mask: %w", err)
	}
	if got := members(set); len(got) != len(want) {
		return fmt.Errorf("of the processors %s only %s are there for this process", want, got)
	}
	return nil
}

// localMemory makes the kernel take the calling thread's memory from the NUMA
// domain it runs on, whatever the process was started with (numactl).
func localMemory() error {
	err := unix.SetMemPolicy(unix.MPOL_LOCAL, nil)
	if err != nil && !errors.Is(err, unix.ENOSYS) { // a kernel without NUMA has one domain
		return fmt.Errorf("set_mempolicy: %w", err)
	}
	return nil
}
