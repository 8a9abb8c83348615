package shm

import (
	"fmt"
	"sync/atomic"
)

const (
	magic   = 0x636f686f72740000 | version // "cohort", version
	version = 2

	maxRanks = 256 // of one node

	line      = 64
	cells     = 64        // of each ring; a power of two
	inlineMax = line - 20 // bytes of payload in a cell
	descs     = 64        // long messages that a rank can have announced at once
	slotData  = 2048      // bytes of data in a call slot
	textMax   = 256

	// Sizes of the structures below; a test compares them with the compiler's.
	rankAreaSize = 9 * line
	descSize     = line
	ringSize     = line + cells*line
	callSlotSize = 2*line + slotData
	syncSlotSize = textMax
	slotsSize    = line + 2*callSlotSize + 2*syncSlotSize
)

// control is the first page: what all ranks must agree on, and the job's failure. The loss of a
// rank is recorded in the rank's own area.
type control struct {
	magic uint64
	ranks uint32
	size  uint64
	noCMA atomic.Uint32 // some rank cannot copy between processes
	news  atomic.Uint32 // raised after a rank has left or is lost, and after the job has failed

	// The first failure of the job. The rank that moves state from 0 to 1 fills in the rest and sets
	// it to 2; from then on all ranks only read it.
	_     [64]byte
	state atomic.Uint32
	rank  int32 // the rank that failed
	code  uint32
	bytes uint32 // of text
	text  [textMax]byte
}

// rankArea is what a rank publishes about itself. The two words that other ranks read for every
// message have a cache line each.
type rankArea struct {
	sleeping atomic.Uint32 // a goroutine may be asleep on bell
	_        [60]byte
	bell     atomic.Uint32 // futex word
	_        [60]byte
	pid      atomic.Int64
	left     atomic.Uint32 // it has closed its world
	lost     atomic.Uint32 // how it was lost, and which rank published that: see loss.go
	probeAt  atomic.Uint64 // address of the bytes that tryCopy reads
	cpus     [16]uint64
	_        [24]byte
	beat     atomic.Uint32 // raised at every heartbeat
	every    atomic.Uint32 // milliseconds between two of them; 0: it has none
	bytes    uint32        // of why
	why      [textMax]byte // why it was declared lost
	_        [4]byte
}

// cell is one ring entry: a message or its beginning.
type cell struct {
	seq  atomic.Uint32 // index+1 of the message, written last
	ctx  uint32        // communicator
	size uint64        // kind in the top byte, bytes of the message below
	tag  int32
	data [inlineMax]byte
}

// ring carries messages from one rank to another. Only the receiver writes head.
type ring struct {
	head  atomic.Uint32 // messages taken, updated now and then
	_     [60]byte
	cells [cells]cell
}

// desc describes a long message that its sender has announced, in the sender's table.
type desc struct {
	state atomic.Uint64 // generation<<8 | one of the states
	claim atomic.Uint64 // generation<<32 | next chunk to be copied
	done  atomic.Uint64 // generation<<32 | chunks copied
	dst   atomic.Uint64 // address in the receiver's memory
	n     atomic.Uint64 // bytes the receiver takes
	_     [24]byte
}

// slots are a rank's arrival slots for the collectives of one communicator. The two of each kind
// alternate, so that one can be written while others still read the other.
type slots struct {
	id    atomic.Uint32 // communicator id + 1, 0 when free
	news  atomic.Uint32 // a notice of Break for it is in one of the owner's rings
	_     [56]byte
	calls [2]callSlot
	syncs [2]syncSlot
}

// callSlot is a rank's arrival at a call: the line that is handed over, and more data.
type callSlot struct {
	key   atomic.Uint64 // id<<32 | sequence number, written last
	words [3]uint64     // fingerprint
	small [32]byte      // data, if they fit
	facts [5]uint64     // addresses and lengths of the buffers
	_     [24]byte
	data  [slotData]byte
}

// syncSlot is a rank's arrival at a synchronisation inside a collective.
type syncSlot struct {
	key     atomic.Uint64 // id<<32 | number of the synchronisation
	work    uint64        // address and length of the memory that the rank shares
	workLen uint64
	code    uint32 // of the error it found, 0: none
	bytes   uint32 // of text
	text    [textMax - 32]byte
}

// layout holds the offsets in a segment for n ranks.
type layout struct {
	n     int
	data  int // bytes of each data ring
	slots int // of each rank

	ranks, rings, datas, desc, slotsAt, size int
}

func newLayout(n int) layout {
	l := layout{n: n}
	switch { // keeps the whole below about 100 MiB
	case n <= 8:
		l.data, l.slots = 128<<10, 128
	case n <= 16:
		l.data, l.slots = 64<<10, 128
	case n <= 64:
		l.data, l.slots = 16<<10, 64
	default:
		l.data, l.slots = 4<<10, 32
	}
	at := 4096
	take := func(bytes int) int {
		off := at
		at += (bytes + line - 1) / line * line
		return off
	}
	l.ranks = take(n * rankAreaSize)
	l.desc = take(n * descs * descSize)
	l.slotsAt = take(n * l.slots * slotsSize)
	l.rings = take(n * n * ringSize)
	at = (at + 4095) &^ 4095
	l.datas = take(n * n * l.data)
	l.size = (at + 4095) &^ 4095
	return l
}

// eagerMax is the longest message that goes through the data ring in one piece.
func (l layout) eagerMax() int { return l.data / 8 }

func (l layout) String() string {
	return fmt.Sprintf("%d ranks, %d bytes", l.n, l.size)
}
