package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

func kernelName() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "linux"
	}
	return "linux " + unix.ByteSliceToString(u.Release[:])
}

// kernel tests the system calls that the shm backend uses.
func (d *diagnosis) kernel() {
	const group = "kernel"
	seg, err := shmem.Create("cohort-doctor", 1<<20)
	if err != nil {
		d.add(group, "shared memory", fail, fmt.Sprintf("memfd_create: %v", err), "the shm backend cannot work; Linux 3.17 or later has it, a seccomp filter may forbid it")
	} else {
		d.add(group, "shared memory", ok, "memfd_create works", "")
		word := shmem.At[atomic.Uint32](seg, 0)
		if woken := futexWorks(word); woken {
			d.add(group, "futex", ok, "waiting and waking work", "")
		} else {
			d.add(group, "futex", fail, "a waiting thread was not woken", "waiting ranks will not notice messages: a seccomp filter may forbid futex")
		}
		seg.Close()
	}
	d.singleCopy()
	if err := abstractSocket(); err != nil {
		d.add(group, "abstract sockets", fail, err.Error(), "ranks of shm cannot find each other")
	} else {
		d.add(group, "abstract sockets", ok, "ranks can find each other", "")
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil {
		d.add(group, "/dev/shm", warn, err.Error(), "cohort does not need it; MPI libraries do")
	} else if n := fs.Bavail * uint64(fs.Bsize); n < 64<<20 {
		d.add(group, "/dev/shm", warn, size(n)+" free", "cohort does not need it; MPI libraries need more (docker run --shm-size)")
	} else {
		d.add(group, "/dev/shm", ok, size(n)+" free (used by MPI libraries; cohort does not need it)", "")
	}
}

// futexWorks has one goroutine sleep on a word and another wake sleepers until
// the first reports that it is awake. The word does not change: only a wake-up, or
// the time limit, ends the sleep.
func futexWorks(word *atomic.Uint32) bool {
	const limit = 2 * time.Second
	awake := make(chan time.Duration, 1)
	go func() {
		began := time.Now()
		shmem.FutexWait(word, 0, limit)
		awake <- time.Since(began)
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		select {
		case slept := <-awake:
			return slept < limit
		case <-again.C:
			shmem.FutexWake(word, 1)
		}
	}
}

// singleCopy reports whether one process may read another's memory.
func (d *diagnosis) singleCopy() {
	const group, name = "kernel", "single copy"
	if err := shmem.Self().Process().Check(); err != nil {
		d.add(group, name, warn, fmt.Sprintf("process_vm_readv: %v", err), "long messages take two copies; a seccomp filter may forbid it (docker run --cap-add SYS_PTRACE)")
		return
	}
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	scope := strings.TrimSpace(string(b))
	switch {
	case errors.Is(err, os.ErrNotExist) || scope == "0":
		d.add(group, name, ok, "process_vm_readv works between processes of one user", "")
	case scope == "1":
		d.add(group, name, ok, "process_vm_readv works where ranks allow it (kernel.yama.ptrace_scope = 1)", "")
	default:
		d.add(group, name, warn, "needs privileges (kernel.yama.ptrace_scope = "+scope+")", "long messages take two copies; sysctl kernel.yama.ptrace_scope=1 allows a single copy")
	}
}

// abstractSocket connects through a socket that is no file.
func abstractSocket() error {
	name := fmt.Sprintf("@cohort-doctor/%d/%d", os.Getuid(), os.Getpid())
	l, err := net.Listen("unix", name)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.DialTimeout("unix", name, 2*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
