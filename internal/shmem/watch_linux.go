package shmem

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Watch reports the end of processes.
type Watch struct {
	Polled error // why the processes are asked every pollEvery, because pidfd_open is denied; nil: they are not

	ep   *os.File
	fds  []int // pidfds
	stop chan struct{}
	done chan struct{}
}

// pollEvery is a part of the 100 ms within which the end of a rank is known. A look at a process takes some 10 µs.
const pollEvery = 50 * time.Millisecond

// NewWatch starts watching: ended is called once with the id of each process that ends, from one
// goroutine. A process that has ended already is reported too, but where there is an error nothing is.
func NewWatch(pids map[int]int, ended func(id int)) (*Watch, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	_ = unix.SetNonblock(epfd, true)
	// In Go's poller: waiting costs no thread.
	w := &Watch{ep: os.NewFile(uintptr(epfd), "watch"), stop: make(chan struct{}), done: make(chan struct{})}
	var over []int // of those that have ended
	for id, pid := range pids {
		call := "pidfd_open"
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH {
			over = append(over, id)
			continue
		}
		if err == unix.ENOSYS || err == unix.EPERM || err == unix.EACCES { // the first one
			w.Polled = fmt.Errorf("pidfd_open: %w", err)
			return w, w.poll(pids, ended)
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

// poll watches the files in /proc that show the states of processes. An open one is of a process, not of a number.
func (w *Watch) poll(pids map[int]int, ended func(int)) error {
	files := map[int]*os.File{}
	for id, pid := range pids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			for _, f := range files {
				f.Close()
			}
			close(w.done)
			w.Close()
			return fmt.Errorf("watching process %d (%w): %w", pid, w.Polled, err)
		}
		files[id] = f // nil: it has ended
	}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		b := make([]byte, 512)
		for {
			for id, f := range files {
				n, _ := f.ReadAt(b, 0) // nothing, if the process has ended
				if s := state(b[:n]); s == 0 || strings.IndexByte("ZXx", s) >= 0 {
					ended(id)
					f.Close()
					delete(files, id)
				}
			}
			select {
			case <-tick.C:
			case <-w.stop:
				for _, f := range files {
					f.Close()
				}
				return
			}
		}
	}()
	return nil
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
	close(w.stop)
	<-w.done
	for _, fd := range w.fds {
		unix.Close(fd)
	}
}
