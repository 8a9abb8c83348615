package tcp

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/engine"
)

// sleeper is the engine.Sleeper: the leader sleeps on the sockets, and on a pipe by which other goroutines
// wake it. The engine's lock guards set and asked; sleep is the leader's.
type sleeper struct {
	bell  bell
	sleep pollset
	asked pollset
}

func newSleeper() (*sleeper, error) {
	b, err := newBell()
	return &sleeper{bell: b}, err
}

// Begin implements engine.Sleeper.
func (s *sleeper) Begin() {
	s.sleep.reset()
	s.sleep.add(s.bell.r, false)
}

// Add implements engine.Sleeper.
func (s *sleeper) Add(l engine.Link, room bool) (ready bool) {
	switch l := l.(type) {
	case *link:
		s.sleep.add(l.fd, room)
	case *near:
		s.sleep.add(l.fd, false)
	}
	return l.Arm(room)
}

// Sleep implements engine.Sleeper.
func (s *sleeper) Sleep(timeout time.Duration) { s.sleep.wait(timeout) }

// End implements engine.Sleeper.
func (s *sleeper) End() {
	if s.sleep.ready(0) {
		s.bell.quiet()
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
func (s *sleeper) Close() { s.bell.close() }
