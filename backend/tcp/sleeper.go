package tcp

import (
	"time"

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

// newSleeper returns a sleeper, with a wake-up socket of that name if it is not empty and there can be one.
func newSleeper(wake string) (*sleeper, error) {
	b, err := newBell()
	s := &sleeper{bell: b}
	if err == nil && wake != "" {
		s.wake, _ = newWakeSocket(wake)
	}
	return s, err
}

// Begin implements engine.Sleeper.
func (s *sleeper) Begin() {
	s.sleep.reset()
	s.sleep.add(s.bell.r, false)
	if s.node != nil {
		s.sleep.add(s.wake.fd, false)
		s.node.Announce()
	}
}

// Add implements engine.Sleeper.
func (s *sleeper) Add(l engine.Link, room bool) (ready bool) {
	switch l := l.(type) {
	case *link:
		s.sleep.add(l.fd, room)
		return l.Hidden()
	case *near:
		s.sleep.add(l.fd, false)
		l.check = true
	}
	return false
}

// Sleep implements engine.Sleeper.
func (s *sleeper) Sleep(timeout time.Duration) { s.sleep.wait(timeout) }

// End implements engine.Sleeper.
func (s *sleeper) End() {
	if s.sleep.ready(0) {
		s.bell.quiet()
	}
	if s.node != nil {
		s.node.Awake()
		if s.sleep.ready(1) {
			s.wake.drain()
		}
	}
}

// Ring implements engine.Sleeper.
func (s *sleeper) Ring() { s.bell.ring() }

// Poll implements engine.Sleeper.
func (s *sleeper) Poll(links []engine.Link, room []bool, ready func(i int)) {
	s.asked.reset()
	for i, l := range links {
		s.asked.add(l.(*link).fd, room[i])
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
	s.bell.close()
	if s.wake != nil {
		s.wake.close()
	}
}
