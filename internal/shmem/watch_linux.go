package shmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Watch reports the end of processes.
type Watch struct {
	ep   *os.File
	fds  map[int]int // pidfd of each id
	done chan struct{}
}

// NewWatch starts watching: ended is called once with the id of each process
// that ends, from one goroutine. A process that has ended already is reported too,
// but where there is an error nothing is.
func NewWatch(pids map[int]int, ended func(id int)) (*Watch, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	w := &Watch{fds: map[int]int{}, done: make(chan struct{})}
	fail := func(err error) (*Watch, error) {
		for _, fd := range w.fds {
			unix.Close(fd)
		}
		unix.Close(epfd)
		return nil, err
	}
	var over []int // of those that have ended
	for id, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			if err == unix.ESRCH {
				over = append(over, id)
				continue
			}
			return fail(fmt.Errorf("watching process %d (pidfd_open): %w", pid, err))
		}
		w.fds[id] = fd
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(id)}
		if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return fail(fmt.Errorf("watching process %d (epoll_ctl): %w", pid, err))
		}
	}
	if err := unix.SetNonblock(epfd, true); err != nil {
		return fail(err)
	}
	w.ep = os.NewFile(uintptr(epfd), "watch") // in Go's poller: waiting costs no thread
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
	w.fds = nil
}
