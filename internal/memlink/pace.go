package memlink

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Whether the two processors share a cache cannot be read from the topology: a virtual machine's is a
// guess, and the machine may be moved. So both ranks measure how long a piece takes into the data ring and
// out of it. The receiver tells the sender by one word (ring.slow).
//
//   - While messages go through the rings, each measures every fifth piece. If these take longer than the
//     kernel does, in a moving average, the sender lets the kernel copy long messages. It adds that the last
//     piece of a message is read when all are written: of 64 KiB, which are two pieces, that is half as much.
//   - A receiver measures those copies too. Meanwhile the sender puts a probe into the ring before every
//     sixteenth. A probe that takes less, to write less than two thirds of it, ends that.
//
// docs/adr/0001-shm-messages.md has measured times.
const (
	probeSize    = 16 << 10             // its second half is measured
	probeEvery   = 16                   // transfers for each probe
	measureMin   = 4 << 10              // shortest piece that is measured
	measureEvery = 5                    // pieces for each measured one; odd, so that of messages of two pieces both are
	clockTakes   = 40 * time.Nanosecond // two readings of the clock
	timedMin     = 64 << 10             // shortest transfer that is measured

	copyPerKiB = 100 * time.Nanosecond // what the kernel takes, before it is measured

	// CopyMin is the shortest message that the kernel copies. Shorter ones cost less in the rings.
	CopyMin = 32 << 10
)

// pace is what a link has measured, and when it sends the next probe. Times are for each KiB.
type pace struct {
	written, read gauge
	perKiB        time.Duration // what the kernel takes
	copies        uint          // transfers since the last probe
	now           func() time.Time
	scratch       [probeSize / 2]byte
}

// gauge is the pace of pieces in one direction.
type gauge struct {
	pieces  uint          // since the last measured one
	average time.Duration // moving
}

// put copies a piece into the data ring.
func (l *Link) put(room, body []byte) {
	if !l.due(&l.pace.written, len(body)) {
		shmem.Move(room, body)
		return
	}
	l.measure(&l.pace.written, len(body), func() { shmem.Move(room, body) })
}

// get copies the next piece of a payload out of it.
func (l *Link) get(a *frame.Arrival, n int) {
	if l.in.r.slow.Load() != 0 || !l.due(&l.pace.read, n) {
		a.Take(l.in.piece(n))
		return
	}
	l.measure(&l.pace.read, n, func() { a.Take(l.in.piece(n)) })
	if l.pace.read.average > l.pace.perKiB {
		l.in.r.slow.Store(1)
	}
}

// due reports whether the copy of a piece is measured.
func (l *Link) due(g *gauge, n int) bool {
	if n < measureMin || !l.cfg.Copies || !l.cfg.Spare {
		return false
	}
	g.pieces++
	return g.pieces%measureEvery == 0
}

// measure measures a copy of n bytes. An interrupt does not count for more than a slow piece.
func (l *Link) measure(g *gauge, n int, do func()) {
	g.average = (7*g.average + min(l.time(n, do), 2*l.pace.perKiB)) / 8
}

// ring returns how long the ring takes for each KiB of a message of n bytes: to write all pieces, and to read the
// last one, which takes about as long as to write it.
func (p *pace) ring(n int) time.Duration {
	if n < timedMin { // the kernel takes longer for each KiB of them
		return p.written.average
	}
	return p.written.average * time.Duration(n+pieceMax) / time.Duration(n)
}

// time returns how long a copy of n bytes takes.
func (l *Link) time(n int, do func()) time.Duration {
	start := l.pace.now()
	do()
	return (l.pace.now().Sub(start) - clockTakes) * 1024 / time.Duration(n)
}

// probe copies the two halves of a probe. The first only warms memory. If the second is fast, the average
// begins at the limit, so that the first slow piece ends it.
func (l *Link) probe(g *gauge, limit time.Duration, do func(half int)) (fast bool) {
	do(0)
	if fast = l.time(probeSize/2, func() { do(probeSize / 2) }) <= limit; fast {
		g.average = limit
	}
	return fast
}

// probed reads a probe.
func (l *Link) probed() {
	p := l.in.piece(probeSize)
	if l.probe(&l.pace.read, l.pace.perKiB, func(half int) { shmem.Move(l.pace.scratch[:], p[half:]) }) {
		l.in.r.slow.Store(0)
	}
}

// copied adds the time of a transfer of n bytes to the average.
func (p *pace) copied(n int, took time.Duration) {
	p.perKiB = Average(p.perKiB, took*1024/time.Duration(n))
}

// Average returns a moving average after one more time. It falls fast and rises slowly, because a time that is too
// long may include an interruption, or a wait for the peer.
func Average(was, took time.Duration) time.Duration {
	d := min(took, 2*was) - was
	if d < 0 {
		return was + d/2
	}
	return was + d/16
}

// ChooseCopy decides whether the kernel copies a message of n bytes to the peer. If it does, ChooseCopy sends a probe
// of the ring now and then.
func (l *Link) ChooseCopy(n int) bool {
	switch {
	case n < CopyMin || !l.cfg.Copies:
		return false
	case !l.cfg.Spare: // one rank copies while the other does not run
		return true
	case l.out.r.slow.Load() == 0 && l.pace.ring(n) <= l.pace.perKiB:
		return false
	}
	if l.pace.copies++; l.pace.copies%probeEvery == 0 && len(l.out.data) >= 2*probeSize {
		if c := l.out.cell(); c != nil {
			if room := l.out.room(probeSize); room != nil {
				l.probe(&l.pace.written, l.pace.perKiB*2/3, func(half int) { clear(room[half:][:probeSize/2]) })
				c.size = kindProbe<<kindBits | probeSize
				l.out.publish(c)
			}
		}
	}
	return true
}
