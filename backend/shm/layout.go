package shm

import (
	"sync/atomic"

	"github.com/cohort-hpc/cohort/internal/board"
	"github.com/cohort-hpc/cohort/internal/memlink"
)

const (
	magic   = 0x636f686f72740000 | version // "cohort", version
	version = 3

	maxRanks = 256 // of one node

	line = 64

	rankAreaSize = 5 * line // a test compares it with the compiler's
)

// control is the first page: what all ranks must agree on.
type control struct {
	magic uint64
	ranks uint32
	size  uint64
	noCMA atomic.Uint32 // some rank cannot copy between processes
}

// rankArea is what a rank publishes about itself. The two words that other ranks read for every
// message have a cache line each.
type rankArea struct {
	sleeping atomic.Uint32 // a goroutine may be asleep on bell
	_        [60]byte
	bell     atomic.Uint32 // futex word
	_        [60]byte
	pid      atomic.Int64
	probeAt  atomic.Uint64 // address of the bytes that tryCopy reads
	cpus     [16]uint64
	_        [48]byte
}

// layout holds the offsets in a segment for n ranks.
type layout struct {
	n    int
	data int // bytes of each data ring

	ranks, board, links, size int
}

func newLayout(n int) layout {
	l := layout{n: n, data: 1 << 20}
	for l.data > 4096 && l.data*n*(n-1) > ringsMost {
		l.data /= 2
	}
	at := 4096
	take := func(bytes int) int {
		off := at
		at += (bytes + 4095) &^ 4095
		return off
	}
	l.ranks = take(n * rankAreaSize)
	l.board = take(board.Size(n))
	l.links = take(n * n * memlink.Size(l.data))
	l.size = at
	return l
}

// ringsMost bounds the data rings of a job of up to 128 ranks.
const ringsMost = 64 << 20

// direction returns the offset of what one rank writes for another.
func (l layout) direction(from, to int) int {
	return l.links + (from*l.n+to)*memlink.Size(l.data)
}
