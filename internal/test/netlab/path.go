package netlab

import (
	"math/rand/v2"
	"time"
)

// A Path describes the effects on packets from one host to another. The zero value has none.
// Probabilities are from 0 to 1 and apply to each packet separately.
type Path struct {
	Delay  time.Duration // of every packet
	Jitter time.Duration // at most added to it: packets overtake each other

	Loss      float64
	Duplicate float64

	Reorder float64       // the packet is held back, and others overtake it,
	Hold    time.Duration // for this time

	// Corrupt flips one bit of a TCP segment's payload. The receiver's kernel drops the segment.
	Corrupt float64

	Bandwidth float64 // bytes a second; 0 for no limit
	Queue     int     // most bytes that wait for it, others are lost; 0 means 256 KiB

	Cut bool // nothing passes
}

// Count counts the packets from one host to another.
type Count struct {
	Packets, Bytes int // that the sender's host has sent; bytes with the headers of IP

	Lost, Duplicated, Held, Corrupted int // of these packets
}

const defaultQueue = 256 << 10

// fate is what happens to one packet.
type fate struct {
	copies  []time.Duration // when each of its copies arrives; none: it is lost
	corrupt bool
}

// A pair is the state of the path between two hosts.
type pair struct {
	path  Path
	dice  *rand.Rand
	free  time.Time // when the wire is free, for Bandwidth
	count Count
}

// throw decides what happens to a packet of n bytes that is sent now.
func (p *pair) throw(n int, now time.Time, f *fate) {
	*f = fate{copies: f.copies[:0]}
	w := &p.path
	p.count.Packets++
	p.count.Bytes += n
	if w.Cut || p.hits(w.Loss) {
		p.count.Lost++
		return
	}
	wait := w.Delay
	if w.Bandwidth > 0 {
		queue := w.Queue
		if queue == 0 {
			queue = defaultQueue
		}
		if p.free.Before(now) {
			p.free = now
		}
		if p.free.Sub(now).Seconds()*w.Bandwidth > float64(queue) {
			p.count.Lost++
			return
		}
		p.free = p.free.Add(time.Duration(float64(n) / w.Bandwidth * float64(time.Second)))
		wait += p.free.Sub(now)
	}
	if p.hits(w.Reorder) {
		p.count.Held++
		wait += w.Hold
	}
	f.copies = append(f.copies, wait+p.jitter())
	if p.hits(w.Duplicate) {
		p.count.Duplicated++
		f.copies = append(f.copies, wait+p.jitter())
	}
	f.corrupt = p.hits(w.Corrupt)
}

func (p *pair) hits(chance float64) bool { return chance > 0 && p.dice.Float64() < chance }

func (p *pair) jitter() time.Duration {
	if p.path.Jitter <= 0 {
		return 0
	}
	return time.Duration(p.dice.Int64N(int64(p.path.Jitter)))
}
