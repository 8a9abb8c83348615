package shmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Watch reports the end of processes.
type Watch struct {
	ep   *os.File
	fds  []int // pidfds
	done chan struct{}
}

// NewWatch starts watching: ended is called once with the id of each process that ends, from one
// goroutine. A process that has ended already is reported too, but where there is an error nothing is.
func NewWatch(pids map[int]int, ended func(id int)) (*Watch, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	_ = unix.SetNonblock(epfd, true)
	// In Go's poller: waiting costs no thread.
	w := &Watch{ep: os.NewFile(uintptr(epfd), "watch"), done: make(chan struct{})}
	var over []int // of those that have ended
	for id, pid := range pids {
		call := "pidfd_open"
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			over = append(over, id)
			continue
		}
		if err == nil {
			call, w.fds = "epoll_ctl", append(w.fds, fd)
			err = unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(id)})
		}
		if err != nil {
			close(w.done)
			w.Close()
			return nil, fmt.Errorf("watching process %d (%s): %w", pid, call, err)
		}
	}
	go w.run(over, ended)
	return w, nil
}

// run reports those that have ended already, and then the others.
func (w *Watch) run(over []int, ended func(int)) {
	defer close(w.done)
	for _, id := range over {
		ended(id)
	}
	conn, err := w.ep.SyscallConn()
	if err != nil {
		return
	}
	var evs [16]unix.EpollEvent
	for {
		n := 0
		err := conn.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), evs[:], 0)
			return n > 0
		})
		if err != nil {
			return // closed
		}
		for _, ev := range evs[:n] {
			ended(int(ev.Fd))
		}
	}
}

// Close ends the watch; ended is not called after it.
func (w *Watch) Close() {
	w.ep.Close()
	<-w.done
	for _, fd := range w.fds {
		unix.Close(fd)
	}
}
