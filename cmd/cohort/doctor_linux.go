package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

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

// kernel tests what ranks of this machine use, as far as a job over shm does not show it.
func (d *diagnosis) kernel() {
	const group = "kernel"
	d.singleCopy()
	var fs unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &fs); err != nil {
		d.add(group, "/dev/shm", warn, err.Error(), "MPI libraries need it; cohort then keeps the records of a job in TMPDIR")
	} else if n := fs.Bavail * uint64(fs.Bsize); n < 64<<20 {
		d.add(group, "/dev/shm", warn, size(n)+" free", "MPI libraries need more (docker run --shm-size); cohort keeps the records of a job there, or else in TMPDIR")
	} else {
		d.add(group, "/dev/shm", ok, size(n)+" free (for MPI libraries; cohort keeps the records of a job there, or else in TMPDIR)", "")
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
