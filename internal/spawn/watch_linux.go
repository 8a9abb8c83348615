package spawn

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// pidfdsWork reports whether this process can watch processes that are not its children, by pidfds, since Linux 5.3.
var pidfdsWork = sync.OnceValue(func() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
})

// watch reports the ends of ranks in the order in which they end, whether or not they are children of this process. The
// ready list of an epoll set keeps that order; goroutines that each wait for one process would lose it.
type watch struct {
	set  int      // the epoll set; the data of an event is the rank
	hold *os.File // closing it ends run: the other end of the pipe is in the set

	mu    sync.Mutex
	ranks map[int]watched
}

type watched struct {
	pidfd int
	child *os.Process // nil if it is not one
}

const ofStop = -1 // in place of a rank: the pipe that ends run

// newWatch returns a watch without processes. A nil watch does nothing.
func newWatch() (*watch, error) {
	r, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w := &watch{hold: hold, ranks: map[int]watched{}}
	stop := -1
	if w.set, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err == nil {
		stop, err = unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	r.Close()
	if err == nil {
		err = w.put(ofStop, watched{stop, nil})
	}
	if err != nil {
		hold.Close()
		return nil, err
	}
	return w, nil
}

func (w *watch) put(rank int, p watched) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ranks[rank] = p
	// Edge-triggered: one event when the process ends, and one when its parent has
	// waited for it. The status is available from then on.
	const edge = 1 << 31
	return unix.EpollCtl(w.set, unix.EPOLL_CTL_ADD, p.pidfd, &unix.EpollEvent{Events: unix.EPOLLIN | edge, Fd: int32(rank)})
}

func (w *watch) drop(rank int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fd := w.ranks[rank].pidfd
	delete(w.ranks, rank)
	_ = unix.EpollCtl(w.set, unix.EPOLL_CTL_DEL, fd, nil) // package os has a duplicate, and so closing it would not remove it
	_ = unix.Close(fd)
}

// follow adds a process that exists now. child is that process if it is a child of this one, nil otherwise. fd is the
// pidfd that the kernel gave with a child, or -1. A system may deny pidfd_open and give that one.
func (w *watch) follow(rank, pid int, child *os.Process, fd int) (err error) {
	if w == nil {
		return errors.ErrUnsupported
	}
	if fd < 0 {
		if fd, err = unix.PidfdOpen(pid, 0); err != nil {
			return err
		}
	}
	return w.put(rank, watched{fd, child})
}

// run sends an exit when a process ends. If the status is not available then, unknown is
// set, and run sends another exit when it is. It returns after close, or when done is closed.
func (w *watch) run(ended chan<- exit, done <-chan struct{}) {
	if w == nil {
		return
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range w.ranks {
			unix.Close(p.pidfd)
		}
		unix.Close(w.set)
	}()
	began := map[int]time.Time{} // when a rank was seen to have ended
	events := make([]unix.EpollEvent, 64)
	for {
		n, _ := unix.EpollWait(w.set, events, -1) // the only error it can give is EINTR
		for _, event := range events[:max(n, 0)] {
			rank := int(event.Fd)
			if rank == ofStop {
				return
			}
			w.mu.Lock()
			p := w.ranks[rank]
			w.mu.Unlock()
			at, seen := began[rank]
			e := exit{rank: rank, at: time.Now()} // all times differ
			if p.child != nil {
				w.drop(rank) // first: that this process waits for it is an event too
				select {
				case ended <- reap(rank, p.child, e.at):
					continue
				case <-done:
					return
				}
			}
			switch wait, known := exitStatus(p.pidfd); {
			case seen && !known:
				continue
			default:
				e.wait, e.unknown = wait, !known
			}
			if seen {
				e.at = at
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
func (w *watch) close() {
	if w != nil {
		w.hold.Close()
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
