package shm

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// sleeper is the engine.Sleeper: the leader sleeps on a futex, which the rank that has news for it wakes.
type sleeper struct {
	area *rankArea
	bell uint32 // when the sleep was prepared
}

// Begin implements engine.Sleeper.
func (s *sleeper) Begin() {
	s.bell = s.area.bell.Load()
	s.area.sleeping.Store(1)
}

// Add implements engine.Sleeper.
func (s *sleeper) Add(l engine.Link, room bool) bool { return l.Arm(room) }

// Sleep implements engine.Sleeper.
func (s *sleeper) Sleep(timeout time.Duration) { shmem.FutexWait(&s.area.bell, s.bell, timeout) }

// End implements engine.Sleeper.
func (s *sleeper) End() { s.area.sleeping.Store(0) }

// Ring implements engine.Sleeper.
func (s *sleeper) Ring() {
	s.area.bell.Add(1)
	shmem.FutexWake(&s.area.bell, 1)
}

// Poll implements engine.Sleeper: all links are hidden.
func (s *sleeper) Poll([]engine.Link, []bool, func(int)) {}

// Close implements engine.Sleeper.
func (s *sleeper) Close() {}
