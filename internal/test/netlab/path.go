package netlab

import (
	"math/rand/v2"
	"time"
)

// A Path describes the effects on packets from one host to another. The zero value has none. Packets stay in order and
// intact: what TCP makes of others is up to the kernel, and programs see a delay.
type Path struct {
	Delay time.Duration // of every packet
	Loss  float64       // how probable it is for each packet, from 0 to 1

	Bandwidth float64 // bytes a second; 0 for no limit
	Queue     int     // most bytes that wait for it, others are lost; 0 means 256 KiB

	Cut bool // nothing passes
}

// Count counts the packets from one host to another.
type Count struct {
	Packets, Bytes int // that the sender's host has sent; bytes with the headers of IP
	Lost           int // of these packets
}

const defaultQueue = 256 << 10

// A pair is the state of the path between two hosts.
type pair struct {
	path  Path
	dice  *rand.Rand
	free  time.Time // when the wire is free, for Bandwidth
	count Count
}

// throw decides whether a packet of n bytes that is sent now arrives, and how long that takes.
func (p *pair) throw(n int, now time.Time) (wait time.Duration, arrives bool) {
	w := &p.path
	p.count.Packets++
	p.count.Bytes += n
	if w.Cut || w.Loss > 0 && p.dice.Float64() < w.Loss {
		p.count.Lost++
		return 0, false
	}
	wait = w.Delay
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
			return 0, false
		}
		p.free = p.free.Add(time.Duration(float64(n) / w.Bandwidth * float64(time.Second)))
		wait += p.free.Sub(now)
	}
	return wait, true
}
