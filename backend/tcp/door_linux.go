package tcp

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// A door is a socket at which the ranks of a node wake each other. Whoever sends to it causes no more than
// a look in vain.
type door struct {
	name string
	to   []unix.SockaddrUnix // the others' doors

	mu sync.Mutex // guards fd, and the use of to
	fd int        // -1: closed
}

func newDoor(name string) (*door, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind: %w", err)
	}
	return &door{name: name, fd: fd}, nil
}

// names says what the doors of the ranks of the node are.
func (d *door) names(list []string) {
	for _, name := range list {
		d.to = append(d.to, unix.SockaddrUnix{Name: name})
	}
}

// ring rings at another rank's door. If that has no room, enough is in it.
func (d *door) ring(rank int) {
	d.mu.Lock()
	if d.fd >= 0 {
		_ = unix.Sendto(d.fd, ringing, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &d.to[rank])
	}
	d.mu.Unlock()
}

var ringing = []byte{1}

// quiet takes a ring out.
func (d *door) quiet() {
	var b [1]byte
	unix.Read(d.fd, b[:])
}

func (d *door) close() {
	d.mu.Lock()
	unix.Close(d.fd)
	d.fd = -1
	d.mu.Unlock()
}
