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

// pidfdsWork reports whether this process can watch processes that are not its
// children: by pidfds, since Linux 5.3.
var pidfdsWork = sync.OnceValue(func() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
})

// follower reports the ends of processes that are not children of this one, in the
// order in which they end. As in watch, the ready list of an epoll set keeps the order.
type follower struct {
	set  int      // the epoll set; the data of an event is the rank
	hold *os.File // closing it ends run: the other end of the pipe is in the set

	mu     sync.Mutex
	pidfds map[int]int // by rank
}

const ofStop = -1 // in place of a rank: the pipe that ends run

// newFollower returns a follower without processes. If the system does not support it,
// newFollower returns nil, whose methods do nothing.
func newFollower() (*follower, error) {
	if !pidfdsWork() {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f := &follower{hold: w, pidfds: map[int]int{}}
	stop := -1
	if f.set, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err == nil {
		stop, err = unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	r.Close()
	if err == nil {
		err = f.watch(ofStop, stop)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return f, nil
}

func (f *follower) watch(rank, fd int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pidfds[rank] = fd
	// Edge-triggered: one event when the process ends, and one when its parent has
	// waited for it. The status is available from then on.
	const edge = 1 << 31
	return unix.EpollCtl(f.set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | edge, Fd: int32(rank)})
}

// follow adds a process that exists now.
func (f *follower) follow(rank, pid int) error {
	if f == nil {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	return f.watch(rank, fd)
}

// how returns a rank's status, if it is available. It is called before close.
func (f *follower) how(rank int) (syscall.WaitStatus, bool) {
	if f == nil {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fd, ok := f.pidfds[rank]
	if !ok {
		return 0, false
	}
	return exitStatus(fd)
}

// run sends an exit when a process ends. If the status is not available then, unknown is
// set, and run sends another exit when it is. It returns after close, or when done is closed.
func (f *follower) run(ended chan<- exit, done <-chan struct{}) {
	if f == nil {
		return
	}
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, fd := range f.pidfds {
			unix.Close(fd)
		}
		unix.Close(f.set)
	}()
	began := map[int]time.Time{} // when a rank was seen to have ended
	events := make([]unix.EpollEvent, 64)
	for {
		n, _ := unix.EpollWait(f.set, events, -1) // the only error it can give is EINTR
		for _, event := range events[:max(n, 0)] {
			rank := int(event.Fd)
			if rank == ofStop {
				return
			}
			f.mu.Lock()
			fd := f.pidfds[rank]
			f.mu.Unlock()
			e := exit{rank: rank, at: time.Now()} // all times differ
			var known bool
			if e.wait, known = exitStatus(fd); !known {
				e.unknown = true
			}
			if at, seen := began[rank]; seen {
				if e.at = at; e.unknown {
					continue
				}
			}
			began[rank] = e.at
			select {
			case ended <- e:
			case <-done:
				return
			}
		}
	}
}

// close ends run.
func (f *follower) close() {
	if f != nil {
		f.hold.Close()
	}
}

// The ioctl request for a process's status, and the structure it fills in
// (PIDFD_GET_INFO and struct pidfd_info in linux/pidfd.h).
const (
	pidfdGetInfo  = 3<<30 | pidfdInfoSize<<16 | 0xff<<8 | 11
	pidfdInfoSize = 64
	pidfdInfoExit = 1 << 3 // in the mask, the first 8 bytes: the exit code is valid
	exitCodeAt    = 60
)

var (
	infoLock sync.Mutex
	info     [pidfdInfoSize]byte // the kernel writes here; static memory does not move
)

// exitStatus returns the status of a process, if it is available: since Linux 6.15, once
// its parent has waited for it. Tests replace it to simulate an older kernel.
var exitStatus = readExitStatus

func readExitStatus(pidfd int) (wait syscall.WaitStatus, known bool) {
	infoLock.Lock()
	defer infoLock.Unlock()
	clear(info[:])
	binary.NativeEndian.PutUint64(info[:], pidfdInfoExit)
	err := unix.IoctlSetInt(pidfd, pidfdGetInfo, int(shmem.Addr(info[:])))
	runtime.KeepAlive(&info)
	if err != nil || binary.NativeEndian.Uint64(info[:])&pidfdInfoExit == 0 {
		return 0, false
	}
	return syscall.WaitStatus(binary.NativeEndian.Uint32(info[exitCodeAt:])), true
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
