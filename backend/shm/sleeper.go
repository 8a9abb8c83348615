package shm

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/node"
)

// sleeper is the engine.Sleeper: the leader sleeps on a futex, which the rank that has news for it wakes.
type sleeper struct {
	node *node.Node
	rank int
	bell uint32 // when the sleep was prepared
}

// Begin implements engine.Sleeper.
func (s *sleeper) Begin() { s.bell = s.node.Announce() }

// Add implements engine.Sleeper: the peers ring for this rank.
func (s *sleeper) Add(engine.Link, bool) bool { return false }

// Sleep implements engine.Sleeper.
func (s *sleeper) Sleep(timeout time.Duration) { s.node.Sleep(s.bell, timeout) }

// End implements engine.Sleeper.
func (s *sleeper) End() { s.node.Awake() }

// Ring implements engine.Sleeper.
func (s *sleeper) Ring() { s.node.Ring(s.rank) }

// Poll implements engine.Sleeper: all links are hidden.
func (s *sleeper) Poll([]engine.Link, []bool, func(int)) {}

// Close implements engine.Sleeper.
func (s *sleeper) Close() {}
