package spawn

import (
	"os"
	"syscall"
	"time"
)

// sysProcAttr makes a process the leader of a new group, and has the kernel kill it when
// the thread that started it ends. If pidfd is not nil, *pidfd is set to a descriptor
// that becomes readable when the process ends, or to -1.
func sysProcAttr(pidfd *int) *syscall.SysProcAttr {
	if pidfd != nil {
		*pidfd = -1
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: pidfd}
}

// watch reports the ends of processes in the order in which they ended. The ready list of
// an epoll set keeps that order; goroutines that each wait for one process would lose it.
type watch struct {
	procs  []*os.Process
	pidfds []int
	set    int // -1 on a kernel before 5.3, where the order is arbitrary
}

// newWatch starts to watch processes. It takes ownership of the descriptors.
func newWatch(procs []*os.Process, pidfds []int) *watch {
	w := &watch{procs, pidfds, -1}
	set, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return w
	}
	for i, fd := range pidfds {
		if err := syscall.EpollCtl(set, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}); err != nil {
			syscall.Close(set)
			return w
		}
	}
	w.set = set
	return w
}

// run sends one exit for every process, and returns when all have ended.
func (w *watch) run(ended chan<- exit) {
	defer func() {
		for _, fd := range append(w.pidfds, w.set) {
			if fd >= 0 {
				syscall.Close(fd)
			}
		}
	}()
	if w.set < 0 {
		watchEach(w.procs, ended)
		return
	}
	events := make([]syscall.EpollEvent, 64)
	for left := len(w.procs); left > 0; {
		n, _ := syscall.EpollWait(w.set, events, -1) // the only error it can give is EINTR
		now := time.Now()
		for _, e := range events[:max(n, 0)] {
			i := int(e.Fd)
			ending := reap(i, w.procs[i], now)
			syscall.EpollCtl(w.set, syscall.EPOLL_CTL_DEL, w.pidfds[i], nil)
			left--
			ended <- ending
		}
	}
}
