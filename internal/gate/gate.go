package gate

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/word"
)

// Gate counts who is inside. The zero value is open. Any goroutine may call its methods at any time.
//
// All goroutines write the word count. It has the number of goroutines inside, the bit shut, and the tally of a Tallied
// gate. The goroutine that waits in AwaitEmpty writes the pointer waiter, and those that leave read it.
//
// Invariant: AwaitEmpty does not return true while a goroutine is inside. After Shut, Enter lets nobody in, and a gate
// that is Empty stays so.
type Gate struct {
	count  word.Uint64
	waiter word.Pointer[word.Parker]
}

// Bits 0 to 30 of count are the number of goroutines inside. The bits above shut are the tally (Tallied).
const shut = 1 << 31

// Enter lets the caller in, and returns false if the gate is shut. A caller that was let in calls Leave. A caller that
// is refused was never inside, so an empty gate stays empty.
func (g *Gate) Enter() bool {
	for {
		n := g.count.Load()
		if n&shut != 0 {
			return false
		}
		if g.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Stay lets another party in, even if the gate is shut. The caller must be inside.
func (g *Gate) Stay() { g.count.Add(1) }

// Leave takes the caller out.
func (g *Gate) Leave() { g.leave(0) }

// leave takes the caller out and adds tallied to the word.
func (g *Gate) leave(tallied uint64) {
	if uint32(g.count.Add(tallied-1)) == shut {
		if p := g.waiter.Load(); p != nil {
			p.Unpark()
		}
	}
}

// Shut lets nobody in from now on. It returns true to the first caller. Only one goroutine may call AwaitEmpty.
func (g *Gate) Shut() bool { return g.count.Or(shut)&shut == 0 }

// IsShut reports whether Shut was called.
func (g *Gate) IsShut() bool { return g.count.Load()&shut != 0 }

// Empty reports whether the gate is shut and nobody is inside.
func (g *Gate) Empty() bool { return uint32(g.count.Load()) == shut }

// AwaitEmpty waits until nobody is inside, for at most limit if that is above 0. The gate must be shut. If AwaitEmpty
// returns false, a goroutine still uses what the gate guards: do not free it.
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
