package spawn

import (
	"encoding/binary"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// tells reports whether the end of a process is seen that is no child of this
// one: by its pidfd, which Linux has since 5.3.
var tells = sync.OnceValue(func() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
})

// follow has an exit sent when a process ends that is no child of this one; it is
// unknown before Linux 6.15, and may be so at first until the parent has waited
// for the process. The process must be there when follow is called. stop ends it.
func follow(rank, pid int, ended chan<- exit, done <-chan struct{}) (stop func()) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return func() {}
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return func() {}
	}
	send := func(e exit) {
		select {
		case ended <- e:
		case <-done:
		}
	}
	go func() {
		defer f.Close()
		var at time.Time
		conn.Read(func(uintptr) bool { // called again whenever something happens to the process
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(poll, 0); n < 1 || err != nil {
				return false
			}
			first := at.IsZero()
			if first {
				at = time.Now()
			}
			wait, known, more := exitStatus(fd)
			switch {
			case known:
				send(exit{rank: rank, wait: wait, at: at})
			case first:
				send(exit{rank: rank, unknown: true, at: at})
			}
			return known || !more || poll[0].Revents&unix.POLLHUP != 0
		})
	}()
	return func() { f.Close() }
}

// The request of ioctl that says how a process ended, and what it fills in
// (PIDFD_GET_INFO and struct pidfd_info in linux/pidfd.h).
const (
	pidfdGetInfo  = 3<<30 | pidfdInfoSize<<16 | 0xff<<8 | 11
	pidfdInfoSize = 64
	pidfdInfoExit = 1 << 3 // in the mask, the first 8 bytes: the exit code is there
	exitCodeAt    = 60
)

var (
	infoLock sync.Mutex
	info     [pidfdInfoSize]byte // where the kernel writes; what is static does not move
)

// exitStatus returns how a process ended. more is false if that will not be
// known later either.
func exitStatus(pidfd int) (wait syscall.WaitStatus, known, more bool) {
	infoLock.Lock()
	defer infoLock.Unlock()
	clear(info[:])
	binary.NativeEndian.PutUint64(info[:], pidfdInfoExit)
	err := unix.IoctlSetInt(pidfd, pidfdGetInfo, int(shmem.Addr(info[:])))
	runtime.KeepAlive(&info)
	if err != nil {
		return 0, false, err == unix.ESRCH // it has ended, and its parent not asked yet
	}
	if binary.NativeEndian.Uint64(info[:])&pidfdInfoExit == 0 {
		return 0, false, true
	}
	return syscall.WaitStatus(binary.NativeEndian.Uint32(info[exitCodeAt:])), true, false
}

// trusted reports whether the other end of a connection is of this user, and
// replaces what it says of its process by what the kernel does.
func trusted(c *net.UnixConn, pid *int) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return false
	}
	// A process of another pid namespace has no number here.
	if peer.Pid > 0 {
		*pid = int(peer.Pid)
	}
	return int(peer.Uid) == os.Getuid() && peer.Pid > 0
}
