package wait

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/word"
)

// Bell wakes those that sleep on it. It may be in memory that processes share, where any of them sleeps or rings. The
// zero Bell is ready for use.
//
// Two words are shared. The sleepers alone write asleep, which counts those between Arm and Disarm. A ringer that finds
// one changes rung, and then wakes all. A sleeper reads rung before it counts itself in asleep, looks for news after
// that, and sleeps while rung still has the value that it has read.
//
// Invariant: a ringer publishes its news and then looks at asleep. Either a sleeper's look finds the news, or the sleeper
// is awake once Ring has returned. A ringer that is stopped anywhere does not delay the rings of others.
//
// Ringers read asleep for every message. So a bell shares its cache line only with what changes when it rings.
type Bell struct{ asleep, rung word.Uint32 }

// Arm announces that the caller is about to sleep. Then it looks for news, and passes the result of Arm to Sleep.
func (b *Bell) Arm() (seen uint32) {
	seen = b.rung.Load()
	b.asleep.Add(1)
	return seen
}

// Sleep sleeps until somebody has rung since Arm, for at most timeout if that is above 0. It may return earlier.
func (b *Bell) Sleep(seen uint32, timeout time.Duration) { word.FutexWait(&b.rung, seen, timeout) }

// Disarm takes the caller's announcement back.
func (b *Bell) Disarm() { b.asleep.Add(^uint32(0)) }

// Armed reports whether somebody sleeps or is about to.
func (b *Bell) Armed() bool { return b.asleep.Load() != 0 }

// Ring wakes those that have announced their sleep. Before, the caller has published its news, by an atomic operation
// or with one after it.
func (b *Bell) Ring() {
	if b.Armed() {
		b.rung.Add(1)
		word.FutexWake(&b.rung, 1<<30)
	}
}
