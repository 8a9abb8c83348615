//go:build linux || darwin

package tcp

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errAgain is an error for which again reports true.
var errAgain error = unix.EAGAIN

// again reports that a socket has nothing to read, or takes nothing, at the moment.
func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }

// A socket is the stream of a descriptor.
type socket int

// finish says that nothing more will be written.
func (s socket) finish() { unix.Shutdown(int(s), unix.SHUT_WR) }

// Close closes the socket, once.
func (s *socket) Close() {
	if *s >= 0 {
		unix.Close(int(*s))
		*s = -1
	}
}

// takeSocket takes the descriptor out of a connection, which is closed.
func takeSocket(c net.Conn) (socket, error) {
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	var fd int // does not block, and sends without delay, as the net package has set it
	var failed error
	err = raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) })
	if err = errors.Join(err, failed); err != nil {
		return -1, err
	}
	if withinHost(c) {
		socket(fd).withinHost()
	}
	return socket(fd), nil
}

// withinHost reports whether both ends of a connection are on this machine.
func withinHost(c net.Conn) bool {
	here, ok := c.LocalAddr().(*net.TCPAddr)
	there, ok2 := c.RemoteAddr().(*net.TCPAddr)
	return ok && ok2 && (there.IP.IsLoopback() || here.IP.Equal(there.IP))
}

// A pollset is what a waiter sleeps on.
type pollset struct{ fds []unix.PollFd }

func (p *pollset) reset() { p.fds = p.fds[:0] }

// add adds a descriptor, of which news to read, or room to write too, end the sleep.
func (p *pollset) add(fd socket, write bool) {
	f := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	if write {
		f.Events |= unix.POLLOUT
	}
	p.fds = append(p.fds, f)
}

// wait sleeps until a descriptor has news or the time is over; 0 is no limit, below 0 no sleep.
func (p *pollset) wait(timeout time.Duration) {
	ms := -1
	switch {
	case timeout < 0:
		ms = 0
	case timeout > 0:
		ms = int(min((timeout+time.Millisecond-1)/time.Millisecond, 1<<30))
	}
	unix.Poll(p.fds, ms) // an error leaves no news: a signal, most likely
}

// ready reports whether the i-th descriptor added had news.
func (p *pollset) ready(i int) bool { return p.fds[i].Revents != 0 }

// A bell wakes a goroutine that sleeps on its descriptor.
type bell struct{ r, w socket }

func newBell() (bell, error) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return bell{}, fmt.Errorf("pipe: %w", err)
	}
	for _, fd := range p {
		unix.CloseOnExec(fd)
		unix.SetNonblock(fd, true)
	}
	return bell{socket(p[0]), socket(p[1])}, nil
}

// drain takes out what wakes a goroutine: rings of a bell, or datagrams, of which several ranks may have sent one each.
func (s socket) drain() {
	var buf [64]byte
	for range drainMost {
		if _, err := unix.Read(int(s), buf[:]); err != nil {
			return
		}
	}
}

// drainMost bounds a drain. Datagrams that are left wake the goroutine once more.
const drainMost = 16
