package board

import (
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

const (
	line      = 64
	smallData = 32   // bytes of data in a call slot
	slotData  = 2048 // bytes of data beside it
	textMax   = 256

	// Sizes of the structures below; a test compares them with the compiler's.
	callSlotSize = 2 * line
	syncSlotSize = textMax
	slotsSize    = line + slotsDeep*callSlotSize + dataDeep*slotData + 2*syncSlotSize
)

// A rank arrives at call s when all ranks have arrived at call s-ahead and been compared with it. No rank needs
// the slot that it then overwrites any more: every rank is done with the data of the calls before s-ahead, and had
// compared those before s-2*ahead when it arrived at s-ahead.
const (
	ahead     = 3
	dataDeep  = ahead + 1
	slotsDeep = 8 // at least 2*ahead+1, and a power of two
)

// slots are a rank's arrival slots for the collectives of one communicator. Those of each kind are used in turn,
// so that one can be written while others still read the ones before.
type slots struct {
	id    atomic.Uint64 // Collective.id, 0 when free
	lost  atomic.Uint32 // of a rank's first slots: it was declared lost
	news  atomic.Uint32 // of a rank's first slots: how many communicators others have broken
	more  atomic.Uint32 // of a rank's first slots: how many more are allocated
	_     [44]byte
	calls [slotsDeep]callSlot
	data  [dataDeep][slotData]byte // of the calls, if they do not fit into their slots
	syncs [2]syncSlot
}

// callSlot is a rank's arrival at a call: the line that is handed over, and where longer data are.
type callSlot struct {
	key   uint64 // id<<32 | sequence number, written last
	print backend.Fingerprint
	small [smallData]byte // data, if they fit
	facts [5]uint64       // addresses and lengths of the buffers
	way   uint32          // of rank 0: how the data go, if they do not fit: see way.go
	took  uint32          // nanoseconds of the rank's last call that was measured, 0: of none
	_     [16]byte
}

// syncSlot is a rank's arrival at a synchronization inside a collective.
type syncSlot struct {
	key     atomic.Uint64 // id<<32 | number of the synchronization
	work    uint64        // address and length of the memory that the rank shares
	workLen uint64
	code    uint32 // of the error it found, 0: none
	bytes   uint32 // of text
	text    [textMax - 32]byte
}

// slotsMost is how many communicators a rank can have slots for. Memory for slotsFirst of them is allocated
// at the start, for the others in steps of as many.
const (
	slotsMost  = 1024
	slotsFirst = 4
)

// Size returns how many bytes the slots of ranks take at the start, and how many more they can take.
func Size(ranks int) (first, more int) {
	return ranks * slotsFirst * slotsSize, ranks * (slotsMost - slotsFirst) * slotsSize
}

// offset returns the offset of the slots of a rank.
func (b *Board) offset(rank, i int) int {
	if i < slotsFirst {
		return b.cfg.Offset + (rank*slotsFirst+i)*slotsSize
	}
	return b.cfg.More + (rank*(slotsMost-slotsFirst)+i-slotsFirst)*slotsSize
}

func (b *Board) at(rank, i int) *slots { return shmem.At[slots](b.cfg.Segment, b.offset(rank, i)) }
