package board

import (
	"math"
	"math/bits"
	"time"

	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Data that do not fit into the slots or areas go over messages, as a schedule, or each rank copies what it needs from
// the others' processes. Which is faster depends on the collective, the length, and on whether the processors
// share a cache, and it changes when a virtual machine is moved. So the ranks measure both ways.
//
// Rank 0 chooses the way of each call, and whether it is measured. All ranks find that in its slot. In its
// slot of the next such call each rank publishes how long it took, and rank 0 counts the slowest.
//
// The data go over messages, whatever rank 0 chooses, if a rank's slot says that the kernel does not copy its buffers,
// such as memory of memfd_secret.
type way uint32

const (
	copies way = 1 << iota // from process to process
	measured
	refused // by a rank's buffers
)

const (
	measureEvery = 4   // of this many calls one is measured
	trialCalls   = 6   // made the other way in a trial; the first only warms memory
	trialEvery   = 384 // calls between two trials, times the ratio of the two ways' times
)

// chooser is rank 0's.
type chooser struct {
	choices   map[[2]uint8]*choice // by collective and length
	last, now sample
}

// sample is a call that is measured.
type sample struct {
	*choice // nil: none
	way     way
	n       int // bytes
}

// choice is the way of calls of one collective and about one length.
type choice struct {
	took  [2]time.Duration // for each MiB by way: the shortest, which grows by a moving average; 0: not measured
	best  way
	calls int
	since int // calls since the last trial
	trial int // calls left in this one
}

// next returns the way of the next call.
func (c *choice) next() (w way) {
	c.calls++
	if c.trial == 0 && c.since >= c.gap() {
		c.since, c.trial = 0, trialCalls
	}
	if c.trial == 0 {
		if c.since++; c.since%measureEvery == 0 {
			w = measured
		}
		return w | c.best
	}
	if c.trial--; c.trial < trialCalls-1 {
		w = measured
	}
	return w | (c.best ^ copies)
}

// gap returns how many calls there are between two trials. The first follow each other at shorter intervals: memory that
// is not warm makes a way seem many times slower.
func (c *choice) gap() int {
	n := c.calls / 2
	if took := c.took[c.best]; took > 0 {
		n = min(n, int(trialEvery*c.took[c.best^copies]/took))
	}
	return max(n, measureEvery)
}

// count takes in how long a call took.
func (c *choice) count(w way, perMiB time.Duration) {
	if was := c.took[w]; perMiB < was || was == 0 { // no call takes less than its way
		c.took[w] = perMiB
	} else {
		c.took[w] = memlink.Average(was, perMiB)
	}
	if other := c.took[c.best^copies]; other > 0 && other < c.took[c.best] {
		c.best ^= copies
	}
}

// plan writes this rank's part in the choice of the way into its slot. n is the length of its data.
func (p *peers) plan(to *callSlot, n int) {
	to.took, p.took, to.way = p.took, 0, 0
	if p.refuse() {
		to.way = uint32(refused)
	}
	if p.s.c.Rank() != 0 {
		return
	}
	w, x := way(0), &p.ways
	x.last, x.now = x.now, sample{}
	switch cfg := &p.s.b.cfg; {
	case len(p.s.ranks) == 1 || cfg.Copies && !cfg.Spare: // one rank copies while the other does not run
		w = copies
	case cfg.Copies:
		key := [2]uint8{uint8(p.call.Coll), uint8(bits.Len(uint(n)))}
		c := x.choices[key]
		if c == nil {
			if c = new(choice); x.choices == nil {
				x.choices = make(map[[2]uint8]*choice)
			}
			x.choices[key] = c
		}
		if w = c.next(); w&measured != 0 {
			x.now = sample{c, w & copies, n}
		}
	}
	to.way |= uint32(w)
}

// refuse reports whether the kernel does not copy this rank's buffers.
func (p *peers) refuse() bool {
	// Not only once for a buffer: other memory may be in its place by now.
	return p.s.b.cfg.Copies && !(shmem.Copyable(p.in) && shmem.Copyable(p.call.Recv))
}

// agreed returns the way of a call at which all ranks have arrived. Rank 0 learns how long the last one took.
func (p *peers) agreed() way {
	if l := p.ways.last; l.choice != nil {
		most := uint32(0)
		for r := range p.s.slots {
			took := p.s.slot(p.s.slots[r].Load()).took
			if took == 0 { // an error ended the call
				most = 0
				break
			}
			most = max(most, took)
		}
		if most > 0 {
			l.count(l.way, time.Duration(most)<<20/time.Duration(l.n))
		}
	}
	w := p.wayOf(0)
	for r := range p.s.slots {
		if w&copies != 0 && p.wayOf(r)&refused != 0 {
			return 0
		}
	}
	return w
}

// wayOf returns what a rank's slot says of the way.
func (p *peers) wayOf(r int) way { return way(p.s.slot(p.s.slots[r].Load()).way) }

// end records how long a measured call took.
func (p *peers) end() { p.took = uint32(min(max(time.Since(p.began), 1), math.MaxUint32)) }
