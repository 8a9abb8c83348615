package shmem

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// A Duplex is one end of two byte rings in a segment that two processes share, one for each
// direction. Its methods but Disarm are for one goroutine at a time, and none of them waits.
//
// Each ring has two positions, which only ever grow: the sender's tail and the receiver's head. An
// end keeps its own position to itself and only publishes it; what it reads of the other's is
// checked before it is used, and a position that cannot be is ErrDuplex from then on. What stands in
// the ring is the reader's to check.
type Duplex struct {
	seg           *Segment
	out, in       half
	mine, theirs  *atomic.Uint32 // whether an end sleeps, and what it waits for
	outSize, full uint64         // the length of a ring, and how much is published at once at most
	tail, shown   uint64         // of out: written, and published
	room          uint64         // of out: the other's head, as last seen
	head, acked   uint64         // of in: read, and published

	// Bell is called when the other end sleeps and there is news for it.
	Bell func()
}

// half is one ring.
type half struct {
	tail, head *atomic.Uint64
	data       []byte
}

// The words of an end that sleeps.
const (
	wantsData uint32 = 1 << iota
	wantsRoom
)

// Every word that one end writes and the other reads has two cache lines of its own: processors fetch
// them in pairs.
const (
	apart       = 128
	duplexStart = 4096 // of the first ring's bytes
)

// publishEvery is how many bytes of a long write are shown to the reader at a time: it copies them out
// of the cache while the next are copied in.
const publishEvery = 32 << 10

// ErrDuplex is what a Duplex answers whose other end has written positions that cannot be.
var ErrDuplex = errors.New("the positions in the shared memory cannot be")

// DuplexSize returns the length of a segment for two rings of ring bytes each, a power of two from a
// page on.
func DuplexSize(ring int) int { return duplexStart + 2*ring }

// NewDuplex returns one end of the rings in a segment of DuplexSize(ring) bytes: that of the process
// that made it (first), or the other.
func NewDuplex(seg *Segment, ring int, first bool) (*Duplex, error) {
	if ring < 4096 || ring&(ring-1) != 0 || seg.Len() != DuplexSize(ring) {
		return nil, fmt.Errorf("a segment of %d bytes does not hold two rings of %d", seg.Len(), ring)
	}
	side := func(k int) half {
		return half{
			tail: At[atomic.Uint64](seg, 2*k*apart),
			head: At[atomic.Uint64](seg, (2*k+1)*apart),
			data: Slice[byte](seg, duplexStart+k*ring, ring),
		}
	}
	words := [2]*atomic.Uint32{At[atomic.Uint32](seg, 4*apart), At[atomic.Uint32](seg, 5*apart)}
	d := &Duplex{seg: seg, outSize: uint64(ring), full: min(publishEvery, uint64(ring)/4)}
	d.out, d.in, d.mine, d.theirs = side(0), side(1), words[0], words[1]
	if !first {
		d.out, d.in, d.mine, d.theirs = side(1), side(0), words[1], words[0]
	}
	return d, nil
}

// Read copies what has come into b, as much as fits: 0 bytes if nothing has.
func (d *Duplex) Read(b []byte) (int, error) { return d.Readv(b, nil) }

// Readv is Read into two buffers, one after the other.
func (d *Duplex) Readv(a, b []byte) (int, error) {
	have := d.in.tail.Load() - d.head
	if have == 0 {
		return 0, nil
	}
	if have > d.outSize {
		return 0, ErrDuplex
	}
	n := d.take(a[:min(have, uint64(len(a)))])
	n += d.take(b[:min(have-uint64(n), uint64(len(b)))])
	return n, nil
}

// take copies len(b) bytes that have arrived.
func (d *Duplex) take(b []byte) int {
	for done := 0; done < len(b); {
		at := d.head & (d.outSize - 1)
		n := copy(b[done:min(len(b), done+int(d.outSize/4))], d.in.data[at:])
		done += n
		d.head += uint64(n)
		// A sender waits until the ring has room: a quarter is published at the latest.
		if d.head-d.acked >= d.outSize/4 {
			d.acked = d.head
			d.in.head.Store(d.head)
			d.wake(wantsRoom)
		}
	}
	return len(b)
}

// Write copies as much of b into the ring as there is room for.
func (d *Duplex) Write(b []byte) (int, error) { return d.Writev(b, nil) }

// Writev is Write of two buffers, which become visible at once if they are short.
func (d *Duplex) Writev(a, b []byte) (int, error) {
	n, err := d.fill(a)
	if err == nil && n == len(a) && len(b) > 0 {
		var k int
		k, err = d.fill(b)
		n += k
	}
	d.show()
	return n, err
}

func (d *Duplex) fill(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		free := d.outSize - (d.tail - d.room)
		if free < uint64(len(b)-done) {
			if err := d.look(); err != nil {
				return done, err
			}
			if free = d.outSize - (d.tail - d.room); free == 0 {
				break
			}
		}
		at := d.tail & (d.outSize - 1)
		n := copy(d.out.data[at:], b[done:done+int(min(free, d.full, uint64(len(b)-done)))])
		done += n
		d.tail += uint64(n)
		if d.tail-d.shown >= d.full {
			d.show()
		}
	}
	return done, nil
}

// look learns what the other end has read.
func (d *Duplex) look() error {
	h := d.out.head.Load()
	if h-d.room > d.tail-d.room {
		return ErrDuplex
	}
	d.room = h
	return nil
}

// show publishes what was written.
func (d *Duplex) show() {
	if d.shown != d.tail {
		d.shown = d.tail
		d.out.tail.Store(d.tail)
		d.wake(wantsData)
	}
}

// wake rings for the other end if it sleeps and waits for this.
func (d *Duplex) wake(what uint32) {
	if w := d.theirs.Load(); w&what != 0 && d.theirs.CompareAndSwap(w, 0) {
		d.Bell()
	}
}

// Arm announces that this end is about to sleep, until there is something to read or, with room,
// until something can be written. It reports whether that is so already.
//
// Invariant: each end publishes its progress before it reads the other's word, and announces its
// sleep before it reads the other's progress. So at least one of the two sees the other.
func (d *Duplex) Arm(room bool) (ready bool) {
	w := wantsData
	if room {
		w |= wantsRoom
	}
	d.mine.Store(w)
	if d.in.tail.Load() != d.head {
		return true
	}
	return room && (d.look() != nil || d.tail-d.room < d.outSize)
}

// Disarm announces that this end is awake.
func (d *Duplex) Disarm() { d.mine.Store(0) }

// Close frees the memory. No other method may be called afterwards.
func (d *Duplex) Close() error { return d.seg.Close() }
