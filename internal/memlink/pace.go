package memlink

import "time"

// Whether the two processors share a cache cannot be read from the topology: a virtual machine's is a
// guess, and the machine may be moved. So the receiver measures how long it takes to copy a piece out of
// the data ring, and tells the sender by one word (ring.slow):
//
//   - While messages go through the rings, it measures every eighth piece. If these take longer than the
//     kernel does, in a moving average, the sender lets the kernel copy long messages.
//   - The receiver measures those copies too. Meanwhile the sender puts a probe into the ring before every
//     sixteenth. One that takes less ends that.
//
// Measured on a virtual machine of two processors, with pieces of 32 KiB: 1.1 µs out of the ring if they
// share a cache and 14 µs if they do not; the kernel takes 1.7 to 4.5 µs. Into memory that is in no cache,
// each takes up to twice as long: for 4 MiB 270 µs through the ring and 500 µs by the kernel.
const (
	probeSize  = 16 << 10
	probeOne   = 16                   // in so many transfers
	measureMin = 4 << 10              // shortest piece that is measured
	measureOne = 8                    // in so many
	clockTakes = 40 * time.Nanosecond // two readings of the clock
	timedMin   = 64 << 10             // shortest transfer that is measured

	copyPerKiB = 100 * time.Nanosecond // what the kernel takes, before it is measured

	// CopyMin is the shortest message that the kernel copies. Shorter ones cost less in the rings.
	CopyMin = 16 << 10
)

// pace is what a link has measured, as a receiver, and when it sends the next probe, as a sender.
type pace struct {
	pieces  uint          // since the last measured one
	ring    time.Duration // what pieces take for each KiB: a moving average
	copies  uint          // transfers since the last probe
	perKiB  time.Duration // what the kernel takes
	now     func() time.Time
	scratch [probeSize / 2]byte
}

// due reports whether the copy of a piece is measured.
func (p *pace) due(l *Link, n int) bool {
	if !l.cfg.Copies || !l.cfg.Spare || n < measureMin {
		return false
	}
	p.pieces++
	return p.pieces%measureOne == 0
}

// measure measures how long do takes to copy n bytes out of the data ring.
func (l *Link) measure(n int, do func()) {
	start := l.pace.now()
	do()
	took := l.pace.now().Sub(start)
	perKiB := (took - clockTakes) * 1024 / time.Duration(n)
	if l.in.r.slow.Load() != 0 { // a probe
		if perKiB <= l.pace.perKiB {
			l.pace.ring = l.pace.perKiB // the first slow piece ends it
			l.in.r.slow.Store(0)
		}
		return
	}
	// An interrupt does not count for more than a slow piece.
	l.pace.ring = (7*l.pace.ring + min(perKiB, 4*l.pace.perKiB)) / 8
	if l.pace.ring > l.pace.perKiB {
		l.in.r.slow.Store(1)
	}
}

// copied counts in how long a transfer of n bytes took. An interrupted one counts for twice the average at
// most: otherwise the rings would look fast, and nothing would measure the kernel again.
func (p *pace) copied(n int, took time.Duration) {
	p.perKiB = (3*p.perKiB + min(took*1024/time.Duration(n), 2*p.perKiB)) / 4
}

// probed reads a probe. Its first half only warms the memory that the second is copied to.
func (l *Link) probed() {
	first, second := l.in.piece(probeSize)[:probeSize/2], l.in.piece(probeSize)[probeSize/2:]
	copy(l.pace.scratch[:], first)
	l.measure(probeSize/2, func() { copy(l.pace.scratch[:], second) })
}

// Copies reports whether the kernel is to copy a message of n bytes to the peer, and sends a probe now and
// then if so.
func (l *Link) Copies(n int) bool {
	switch {
	case n < CopyMin || !l.cfg.Copies:
		return false
	case !l.cfg.Spare: // one rank copies while the other does not run
		return true
	case l.out.r.slow.Load() == 0:
		return false
	}
	if l.pace.copies++; l.pace.copies%probeOne == 0 && len(l.out.data) >= 2*probeSize {
		if c := l.out.cell(); c != nil {
			if room := l.out.room(probeSize); room != nil {
				clear(room)
				c.size = kindProbe<<kindBits | probeSize
				l.out.publish(c)
			}
		}
	}
	return true
}
