package shm

import (
	"encoding/binary"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// The kinds of cells.
const (
	kindEager  uint64 = iota + 1 // a whole message: in the cell, or in the data ring
	kindRTS                      // a long or synchronous message: its desc and address
	kindChunk                    // a part of a long one, where copies between processes are forbidden
	kindBreak                    // the communicator is broken: tag is the code, data the text
	kindClose                    // the sender has closed the communicator: its last message there
	kindUnmade                   // the sender had not made the communicator when the receiver closed it
)

const sizeBits = 56

// outRing is the sending end of a ring. The engine's lock guards it.
type outRing struct {
	r    *ring
	data []byte
	tail uint32 // messages sent
	head uint32 // messages the receiver has taken, as last seen
	pos  uint64 // bytes of the data ring used since the start, gaps at the end included
	free uint64 // the part of pos that the receiver has given back
	ends [cells]uint64
	shut bool // the receiver has left or is lost
}

// inRing is the receiving end.
type inRing struct {
	r        *ring
	data     []byte
	next     uint32 // messages taken
	acked    uint32 // of those, how many head reports
	pos      uint64
	ackedPos uint64
}

func newRing(seg *shmem.Segment, l layout, from, to int) (*ring, []byte) {
	i := from*l.n + to
	return shmem.At[ring](seg, l.rings+i*ringSize), shmem.Slice[byte](seg, l.datas+i*l.data, l.data)
}

// place returns where n bytes go in a data ring of the given length whose next
// free byte is pos: they never wrap around. Both ends compute it alike.
func place(pos uint64, length, n int) (at, end uint64) {
	off := int(pos % uint64(length))
	if off+n > length {
		pos += uint64(length - off)
	}
	return pos, pos + uint64((n+line-1)&^(line-1))
}

// room makes sure that a message with n bytes of payload fits. It returns the cell, and the place
// for the payload: in the cell, or in the data ring.
func (o *outRing) room(n int) (*cell, []byte, bool) {
	if o.tail-o.head >= cells {
		o.refresh()
		if o.tail-o.head >= cells {
			return nil, nil, false
		}
	}
	c := &o.r.cells[o.tail%cells]
	if n <= inlineMax {
		o.ends[o.tail%cells] = o.pos
		return c, c.data[:n], true
	}
	at, end := place(o.pos, len(o.data), n)
	if end-o.free > uint64(len(o.data)) {
		o.refresh()
		if end-o.free > uint64(len(o.data)) {
			return nil, nil, false
		}
	}
	o.pos = end
	o.ends[o.tail%cells] = end
	off := at % uint64(len(o.data))
	return c, o.data[off : off+uint64(n)], true
}

// refresh reads what the receiver has taken. It ignores a head that is out of range.
func (o *outRing) refresh() {
	h := o.r.head.Load()
	if h == o.head || h-o.head > o.tail-o.head {
		return
	}
	o.free = o.ends[(h-1)%cells]
	o.head = h
}

// publish hands the cell over.
func (o *outRing) publish(c *cell, kind uint64, ctx uint32, tag int32, size int) {
	c.ctx, c.tag, c.size = ctx, tag, kind<<sizeBits|uint64(size)
	o.tail++
	c.seq.Store(o.tail)
}

// head is a cell's header, copied out of shared memory and checked.
type header struct {
	kind uint64
	ctx  uint32
	tag  int32
	size int
}

// peek returns the next message's header and payload, if there is one. A size that no sender writes
// is reported by ok with a nil payload.
func (in *inRing) peek() (h header, payload []byte, ok bool) {
	c := &in.r.cells[in.next%cells]
	if c.seq.Load() != in.next+1 {
		return h, nil, false
	}
	size := c.size
	h = header{kind: size >> sizeBits, ctx: c.ctx, tag: c.tag, size: int(size & (1<<sizeBits - 1))}
	n := h.size
	if h.kind == kindRTS {
		n = rtsSize
	}
	space := footprint(h.kind, n)
	switch {
	case space <= inlineMax:
		return h, c.data[:n], true
	case n > len(in.data)/2:
		return header{}, nil, true // no sender of ours does that
	}
	at, _ := place(in.pos, len(in.data), space)
	off := at % uint64(len(in.data))
	return h, in.data[off : off+uint64(n)], true
}

// footprint is the room a payload of n bytes takes: chunks use the data ring
// always, because their cell names the transfer.
func footprint(kind uint64, n int) int {
	if kind == kindChunk {
		return max(n, inlineMax+1)
	}
	return n
}

// extra returns the bytes inside the cell of a message whose payload is in the
// data ring.
func (in *inRing) extra() *[inlineMax]byte { return &in.r.cells[in.next%cells].data }

// take gives back the cell and n bytes (a footprint) of the data ring. It reports whether the
// sender can see that now; the sender may be waiting for it.
func (in *inRing) take(n int) (acked bool) {
	in.next++
	if n > inlineMax {
		_, in.pos = place(in.pos, len(in.data), n)
	}
	if in.next-in.acked < cells/4 && in.pos-in.ackedPos < uint64(len(in.data))/4 {
		return false
	}
	in.acked, in.ackedPos = in.next, in.pos
	in.r.head.Store(in.next)
	return true
}

// addressSpace exceeds the length of any message: a status with a larger one would make its reader
// allocate as much.
const addressSpace = 1 << 47

// The payload of an RTS: which desc, its generation, the address in the sender.
const rtsSize = 24

func putRTS(b []byte, idx int, gen, addr uint64) {
	binary.LittleEndian.PutUint64(b, uint64(idx))
	binary.LittleEndian.PutUint64(b[8:], gen)
	binary.LittleEndian.PutUint64(b[16:], addr)
}

func getRTS(b []byte) (idx, gen, addr uint64) {
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
}
