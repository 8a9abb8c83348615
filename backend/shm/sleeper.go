package shm

import (
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/node"
)

// sleeper is the engine.Sleeper: the leader sleeps on a futex, which the rank that has news for it wakes.
type sleeper struct{ *node.Node }

// Add implements engine.Sleeper: the peers ring for this rank.
func (sleeper) Add(engine.Link, bool) bool { return false }

// Poll implements engine.Sleeper: all links are hidden.
func (sleeper) Poll([]engine.Link, []bool, func(int)) {}

// Close implements engine.Sleeper. The memory stays.
func (sleeper) Close() {}
