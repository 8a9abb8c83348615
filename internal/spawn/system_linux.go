package spawn

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/topo"
)

// sysProcAttr makes a process the leader of a new group, and has the kernel kill it when
// the thread that started it ends.
func sysProcAttr(pidfd *int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: pidfd}
}

// setAffinity binds the calling thread, and every process that it starts later, to
// cpus. A Go program reads its mask once, at start-up, to set GOMAXPROCS. So the
// mask must be set before the program starts.
func setAffinity(cpus topo.CPUSet) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}

// trusted reports whether the other end of a connection belongs to this user, and
// replaces the process ID that it sent by the one that the kernel reports.
func trusted(c *net.UnixConn, pid *int) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return false
	}
	// A process of another PID namespace has no ID here.
	if peer.Pid > 0 {
		*pid = int(peer.Pid)
	}
	return int(peer.Uid) == os.Getuid() && peer.Pid > 0
}

// liftLimit raises the soft limit on descriptors of a process that was just started, and of its children,
// to n, as far as the hard limit permits. The Go runtime raises the limit of this process only.
func liftLimit(pid, n int) {
	var r unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &r) != nil || r.Cur >= min(uint64(n), r.Max) {
		return
	}
	r.Cur = min(uint64(n), r.Max)
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &r, nil) // if it fails, the old limit stays
}
