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
			return w.polled(pids, ended)
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

// polled makes w watch the files in /proc that show the states of processes. An open one is of a process, not of a
// number.
func (w *Watch) polled(pids map[int]int, ended func(int)) (*Watch, error) {
	_, err := os.Stat("/proc/self/stat")
	files := map[int]*os.File{}
	for id, pid := range pids {
		if err != nil {
			break
		}
		f, e := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
		if files[id] = f; !errors.Is(e, os.ErrNotExist) { // else nil: it has ended
			err = e
		}
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		close(w.done)
		w.Close()
		return nil, fmt.Errorf("watching processes (%w): %w", w.Polled, err)
	}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		b := make([]byte, 512)
		for {
			for id, f := range files {
				// A process that has ended is nil, cannot be read, or is in one of these states.
				n, err := f.ReadAt(b, 0)
				if s := state(b[:n]); errors.Is(err, os.ErrInvalid) || errors.Is(err, unix.ESRCH) || s != 0 && strings.IndexByte("ZXx", s) >= 0 {
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
	close(w.stop)
	<-w.done
	for _, fd := range w.fds {
		unix.Close(fd)
	}
}
