//go:build interleave

package wait

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// sleepUntil is how the owner of a bell waits for words of others.
func sleepUntil(b *Bell, news func() bool) {
	for !news() {
		seen := b.Arm()
		if !news() {
			b.Sleep(seen, 0)
		}
		b.Disarm()
	}
}

// The owner of a bell waits twice for each of two ringers. It finds all their news in the end.
func TestInterleaveBell(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		var bell Bell
		var news [2]word.Uint32
		x.Name(&bell.asleep, "announcement")
		x.Name(&bell.rung, "bell")
		for i := range news {
			x.Name(&news[i], "news of ringer %d", i)
			x.Go(fmt.Sprintf("ringer %d", i), func() {
				for n := range 2 {
					news[i].Store(uint32(n + 1))
					bell.Ring()
				}
			})
		}
		x.Go("owner", func() {
			for n := range uint32(2) {
				sleepUntil(&bell, func() bool { return news[0].Load() > n && news[1].Load() > n })
			}
		})
	})
}

// Two goroutines sleep on a bell at a time, each until it has its own news.
func TestInterleaveBellOfTwoSleepers(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		var bell Bell
		var news [2]word.Uint32
		for i := range news {
			x.Go(fmt.Sprintf("sleeper %d", i), func() { sleepUntil(&bell, func() bool { return news[i].Load() == 1 }) })
		}
		x.Go("ringer", func() {
			for i := range news {
				news[i].Store(1)
				bell.Ring()
			}
		})
	})
}

// One of two ringers may be stopped for good anywhere. The owner still finds the news of the other one.
func TestInterleaveBellOfStoppedRinger(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 4, Deaths: 1}, func(x *interleave.Run) {
		var bell Bell
		var news [2]word.Uint32
		x.GoMortal("stopped", func() {
			news[0].Store(1)
			bell.Ring()
		})
		x.Go("ringer", func() {
			news[1].Store(1)
			bell.Ring()
		})
		x.Go("owner", func() { sleepUntil(&bell, func() bool { return news[1].Load() == 1 }) })
	})
}

// Both ranks wait for each other at a slot, where arriving is a plain store. It becomes visible by an exchange before
// the rank looks at the other's announcement.
func TestInterleaveBellAfterRelease(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 4}, func(x *interleave.Run) {
		var bells [2]Bell
		var slots [2]uint64
		var exchange [2]word.Uint32
		for i := range 2 {
			x.Go(fmt.Sprintf("rank %d", i), func() {
				word.ReleaseUint64(&slots[i], 1)
				exchange[i].Store(0)
				bells[1-i].Ring()
				sleepUntil(&bells[i], func() bool { return word.LoadUint64(&slots[1-i]) == 1 })
			})
		}
	})
}
