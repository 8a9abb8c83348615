package gate

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/word"
)

// Gate counts who is inside. The zero value is open. Any goroutine may call its methods at any time.
//
// The word count is written by all: the number of those inside, the bit shut, and a tally of what they did there, which
// costs nothing beside leaving. The pointer waiter is written by the goroutine that waits in AwaitEmpty, and read by
// those that leave.
//
// Invariant: while a goroutine is inside, AwaitEmpty has not returned true. After Shut, Enter lets nobody in.
type Gate struct {
	count  word.Uint64
	waiter word.Pointer[word.Parker]
}

// Bits 0 to 30 of the word count those inside, bits 32 to 63 are the tally, modulo 2^32.
const (
	shut      = 1 << 31
	talliedAt = 32
)

// Enter lets the caller in, unless the gate is shut. Whoever is inside calls Leave.
func (g *Gate) Enter() bool {
	if g.count.Add(1)&shut == 0 {
		return true
	}
	g.Leave()
	return false
}

// Stay lets another party in, also if the gate is shut. The caller is inside itself.
func (g *Gate) Stay() { g.count.Add(1) }

// Leave takes the caller out.
func (g *Gate) Leave() { g.LeaveWith(0) }

// LeaveWith takes the caller out and adds n to the tally.
func (g *Gate) LeaveWith(n int) {
	if uint32(g.count.Add(uint64(n)<<talliedAt-1)) == shut {
		if p := g.waiter.Load(); p != nil {
			p.Unpark()
		}
	}
}

// Count adds n to the tally.
func (g *Gate) Count(n int) { g.count.Add(uint64(n) << talliedAt) }

// Tally returns the sum of what was added to it. It is final when the gate is empty.
func (g *Gate) Tally() int32 { return int32(g.count.Load() >> talliedAt) }

// Shut lets nobody in any more. It returns true for the first caller, which alone may call AwaitEmpty.
func (g *Gate) Shut() bool { return g.count.Or(shut)&shut == 0 }

// IsShut reports whether Shut was called.
func (g *Gate) IsShut() bool { return g.count.Load()&shut != 0 }

// Empty reports whether the gate is shut and nobody is inside.
func (g *Gate) Empty() bool { return uint32(g.count.Load()) == shut }

// AwaitEmpty waits until nobody is inside, for at most limit if that is above 0. The gate is shut. If AwaitEmpty
// returns false, what the gate guards must be left as it is.
func (g *Gate) AwaitEmpty(limit time.Duration) bool {
	if g.Empty() {
		return true
	}
	var end time.Time
	if limit > 0 {
		end = time.Now().Add(limit)
	}
	p := word.NewParker()
	g.waiter.Store(p)
	for !g.Empty() {
		if !p.Park(limit) {
			return g.Empty()
		}
		if limit > 0 {
			limit = max(time.Until(end), 1)
		}
	}
	return true
}
