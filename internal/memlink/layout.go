package memlink

import (
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	line      = 64
	inlineMax = line - 20 // bytes of payload in a cell
	descs     = 8         // transfers that one rank can have announced to another at once

	cellSize = line
	descSize = line
	ringSize = 4*line + cells*cellSize
)

// cell is one ring entry: a frame or its beginning, or a further piece of its payload.
type cell struct {
	seq  uint32 // index+1 of the cell, written last; a word
	ctx  uint32 // communicator
	size uint64 // kind in the top 6 bits, what the elements are in the next 16, length of the frame below
	tag  int32
	data [inlineMax]byte
}

// ring carries frames in one direction. Only the receiver writes head and slow.
type ring struct {
	head  word.Uint32 // cells taken, updated now and then
	slow  word.Uint32 // the rings are slower than the kernel's copies: see pace.go
	_     [4*line - 8]byte
	cells [cells]cell
}

// desc describes a transfer that its sender has announced, in the sender's table. The receiver writes dst and n
// into the desc of the same number in its own table.
type desc struct {
	state   word.Uint64 // generation<<8 | one of the states
	claimed counter     // chunks that a rank has begun to copy
	copied  counter
	dst     word.Uint64 // where the data go, in the receiver's memory
	n       word.Uint64 // bytes the receiver takes
	op      word.Uint64 // Transfer.Sender
	_       [16]byte
}

// counter counts the chunks of one generation of a desc: generation<<32 | count. A rank with another generation
// does not change it.
type counter struct{ word.Uint64 }

// next adds 1 to a count below most. It returns the count before.
func (c *counter) next(gen uint64, most uint32) (uint32, bool) {
	for {
		v := c.Load()
		if v>>32 != gen || uint32(v) >= most {
			return 0, false
		}
		if c.CompareAndSwap(v, v+1) {
			return uint32(v), true
		}
	}
}

// fill raises a count to most. It returns the count before, or most if it is of another generation.
func (c *counter) fill(gen uint64, most uint32) uint32 {
	for {
		v := c.Load()
		if v>>32 != gen || uint32(v) >= most {
			return most
		}
		if c.CompareAndSwap(v, gen<<32|uint64(most)) {
			return uint32(v)
		}
	}
}

// Size returns how many bytes one direction between two ranks takes, with a data ring of data bytes, a
// power of two from 4096 on.
func Size(data int) int { return ringSize + descs*descSize + data }

// direction is what one rank writes and the other reads.
type direction struct {
	ring  *ring
	descs []desc
	data  []byte
}

func at(seg *shmem.Segment, off, data int) direction {
	return direction{
		ring:  shmem.At[ring](seg, off),
		descs: shmem.Slice[desc](seg, off+ringSize, descs),
		data:  shmem.Slice[byte](seg, off+ringSize+descs*descSize, data),
	}
}
