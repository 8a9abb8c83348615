package tcp

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// A wakeSocket is what the other ranks of the node wake this one by. A foreign process that sends to it only
// makes the rank look for messages.
type wakeSocket struct {
	name string
	to   []unix.SockaddrUnix // the others' sockets

	mu sync.Mutex // guards fd, and the use of to
	fd int        // -1: closed
}

func newWakeSocket(name string) (*wakeSocket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind: %w", err)
	}
	return &wakeSocket{name: name, fd: fd}, nil
}

// peers sets the names of the sockets of all ranks of the node.
func (s *wakeSocket) peers(list []string) {
	for _, name := range list {
		s.to = append(s.to, unix.SockaddrUnix{Name: name})
	}
}

// send wakes another rank. If its socket has no room, enough is in it.
func (s *wakeSocket) send(rank int) {
	s.mu.Lock()
	if s.fd >= 0 {
		_ = unix.Sendto(s.fd, wakeUp, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &s.to[rank])
	}
	s.mu.Unlock()
}

var wakeUp = []byte{1}

// drain takes one message out.
func (s *wakeSocket) drain() {
	var b [1]byte
	unix.Read(s.fd, b[:])
}

func (s *wakeSocket) close() {
	s.mu.Lock()
	unix.Close(s.fd)
	s.fd = -1
	s.mu.Unlock()
}
