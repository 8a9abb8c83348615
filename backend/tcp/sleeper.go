//go:build linux || darwin

package tcp

import (
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/node"
)

// sleeper is the engine.Sleeper: the leader sleeps on the sockets, on a pipe by which other goroutines wake
// it, and on the socket by which ranks of the node do. The engine's lock guards asked; sleep is the leader's.
type sleeper struct {
	bell  bell
	wake  *wakeSocket // nil: without shared memory
	node  *node.Node  // nil: no rank uses the wake-up socket
	sleep pollset
	asked pollset
}

// newSleeper returns a sleeper, with a wake-up socket of that name if it is not empty.
func newSleeper(wake string) (*sleeper, error) {
	b, err := newBell()
	if err != nil {
		return nil, err
	}
	s := &sleeper{bell: b}
	if wake != "" {
		if s.wake, err = newWakeSocket(wake); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Begin implements engine.Sleeper.
func (s *sleeper) Begin() {
	s.sleep.reset()
	s.sleep.add(s.bell.r, false)
	if s.node != nil {
		s.sleep.add(s.wake.sock, false)
		s.node.Begin()
	}
}

// Add implements engine.Sleeper.
func (s *sleeper) Add(l engine.Link, room bool) (ready bool) {
	switch l := l.(type) {
	case *link:
		s.sleep.add(l.socket, room)
		return l.Hidden()
	case *near:
		s.sleep.add(l.sock, false)
	}
	return false
}

// Sleep implements engine.Sleeper.
func (s *sleeper) Sleep(timeout time.Duration) { s.sleep.wait(timeout) }

// End implements engine.Sleeper.
func (s *sleeper) End() {
	if s.sleep.ready(0) {
		s.bell.r.drain()
	}
	if s.node != nil {
		s.node.End()
		if s.sleep.ready(1) {
			s.wake.sock.drain()
		}
	}
}

// Ring implements engine.Sleeper.
func (s *sleeper) Ring() { unix.Write(int(s.bell.w), wakeUp) }

// Poll implements engine.Sleeper.
func (s *sleeper) Poll(links []engine.Link, room []bool, ready func(i int)) {
	s.asked.reset()
	for i, l := range links {
		s.asked.add(l.(*link).socket, room[i])
	}
	s.asked.wait(-1)
	for i := range links {
		if s.asked.ready(i) {
			ready(i)
		}
	}
}

// Close implements engine.Sleeper.
func (s *sleeper) Close() {
	s.bell.r.Close()
	s.bell.w.Close()
	if s.wake != nil {
		s.wake.mu.Lock()
		s.wake.sock.Close()
		s.wake.mu.Unlock()
	}
}

// A wakeSocket is what the other ranks of the node wake this one by. A foreign process that sends to it only
// makes the rank look for messages.
type wakeSocket struct {
	name string
	to   []unix.SockaddrUnix // the sockets of all ranks of the node

	mu   sync.Mutex // guards sock, and the use of to
	sock socket     // -1: closed
}

func newWakeSocket(name string) (*wakeSocket, error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("wake-up socket: %w", err)
	}
	sock, err := takeSocket(c)
	return &wakeSocket{name: name, sock: sock}, err
}

// send wakes another rank. A datagram that nobody has read counts against the socket that sent it: if many ranks are
// stopped, this socket's room is used up, and another one sends. If that fails too, enough is in the rank's socket.
func (s *wakeSocket) send(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sock < 0 || unix.Sendto(int(s.sock), wakeUp, 0, &s.to[rank]) != unix.EAGAIN {
		return
	}
	if fresh, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0); err == nil {
		unix.CloseOnExec(fresh)
		_ = unix.Sendto(fresh, wakeUp, unix.MSG_DONTWAIT, &s.to[rank])
		unix.Close(fresh)
	}
}

var wakeUp = []byte{1}
