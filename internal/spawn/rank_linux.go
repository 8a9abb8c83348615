package spawn

import (
	"os"
	"syscall"
	"time"
)

// sysProcAttr makes a process the leader of its own group and die with the
// thread that starts it. If pidfd is not nil it gets a descriptor that becomes
// readable when the process ends, or -1.
func sysProcAttr(pidfd *int) *syscall.SysProcAttr {
	if pidfd != nil {
		*pidfd = -1
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: pidfd}
}

// watch reports the end of every process, in the order in which they ended, and
// closes the descriptors: the ready list of an epoll set keeps the order of the
// events, which goroutines that each wait for one process would lose. It returns
// when all have ended.
func watch(procs []*os.Process, pidfds []int, ended chan<- exit) {
	set, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err == nil {
		defer syscall.Close(set)
		for i, fd := range pidfds {
			if err = syscall.EpollCtl(set, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}); err != nil {
				break
			}
		}
	}
	defer func() {
		for _, fd := range pidfds {
			if fd >= 0 {
				syscall.Close(fd)
			}
		}
	}()
	if err != nil { // a kernel before 5.3
		watchEach(procs, ended)
		return
	}
	events := make([]syscall.EpollEvent, 64)
	for left := len(procs); left > 0; {
		n, _ := syscall.EpollWait(set, events, -1) // the only error it can give is EINTR
		now := time.Now()
		for _, e := range events[:max(n, 0)] {
			i := int(e.Fd)
			state, err := procs[i].Wait()
			syscall.EpollCtl(set, syscall.EPOLL_CTL_DEL, pidfds[i], nil)
			ended <- exit{i, state, err, now}
			left--
		}
	}
}
