//go:build linux

package board

import (
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestFasterWayIsChosen lets calls take what the test says, at first over messages and then copied.
func TestFasterWayIsChosen(t *testing.T) {
	type times [2]time.Duration
	var c choice
	make := func(n int, takes times) (other int) {
		for range n {
			w := c.next()
			if w&copies != c.best {
				other++
			}
			if w&measured != 0 {
				c.count(w&copies, takes[w&copies])
			}
		}
		return other
	}
	if make(20, times{100, 800}); c.took[0] == 0 || c.took[copies] == 0 {
		t.Error("20 calls do not measure both ways")
	}
	for _, x := range []struct {
		takes times
		best  way
	}{{times{100, 800}, 0}, {times{1600, 400}, copies}, {times{200, 300}, 0}, {times{200, 100}, copies}} {
		if make(10_000, x.takes); c.best != x.best {
			t.Errorf("%v: way %d is chosen, want %d", x.takes, c.best, x.best)
		}
		const n = 100_000
		other := make(n, x.takes)
		if lost := time.Duration(other) * (x.takes[x.best^copies] - x.takes[x.best]); other == 0 || lost > n*x.takes[x.best]/50 {
			t.Errorf("%v: %d of %d calls are made the other way", x.takes, other, n)
		}
	}
	for range 100 { // an interruption now and then changes nothing
		make(100, times{200, 100})
		c.count(copies, 100_000)
	}
	if c.best != copies {
		t.Error("single calls that take long change the choice")
	}
}

// TestSlowestRankDecides has copies that take rank 1 longer than messages do, and rank 0 no time. All ranks make
// each call in the same way.
func TestSlowestRankDecides(t *testing.T) {
	bs := boards(t, 2)
	all := open(t, bs, 0)
	for _, b := range bs {
		b.cfg.Spare = true
	}
	const calls = 200
	var done [2][calls]bool
	for r, err := range each(all, func(c *comm) error {
		call := allreduce(areaMost/8 + 1)
		for i := range calls {
			call.Ended = nil
			d := must.Get(c.Run(nil, call))
			if done[c.rank][i] = d; call.Ended != nil {
				call.Ended()
			}
			if p := &c.side; p.took > 0 {
				p.took = 1000
				if d {
					p.took = uint32(1 + 5000*c.rank)
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	copied := 0
	for _, d := range done[0] {
		if d {
			copied++
		}
	}
	if done[0] != done[1] || copied == 0 || copied > calls/4 {
		t.Errorf("%d of %d calls are copied; the same on both ranks: %v", copied, calls, done[0] == done[1])
	}
}
