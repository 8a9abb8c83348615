package board

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// The protocol of the arrival slots. Each word of a rank's slots is written by that rank alone:
//
//	id     the communicator that has the slots: stored by open, last, and set to 0 by shut, first
//	key    of a call slot: 0 before anything else in the slot changes, and the number of the call after
//	       everything else; 0 again, after reason, if the call fails (retract)
//	key    of a sync slot: the number of the synchronization, after everything else in the slot; 0 as above
//	ended  that this rank's communicator has ended: stored by Ended, after reason
//
// In a rank's head, more is its own. Others store news (Post) and lost (Mark, after reason).
//
// A rank arrives at call s when all ranks have arrived at call s-ahead and been compared with it. No rank needs the
// slot that it then overwrites any more: every rank is done with the data of the calls before s-ahead, and had
// compared those before s-2*ahead when it arrived at s-ahead.
//
// That holds while the communicator lasts on all ranks. It may end on one while another still reads: a call there was
// given up, all ranks have closed the communicator while a goroutine is in a call, or the reader was stopped and
// declared lost. So a reader looks at the key again after it has taken data, and a key never comes back.
//
// Invariant: a result without an error was computed from slots and buffers whose keys had the number of the call after
// they were read. A key that is taken back has the reason beside it: a rank that misses the key finds the reason.

const (
	line      = 64
	smallData = 32   // bytes of data in a call slot
	slotData  = 2048 // bytes of data beside it
	textMax   = 256
	reasonMax = 952

	// Sizes of the structures below; a test compares them with the compiler's.
	callSlotSize = 2 * line
	syncSlotSize = textMax
	headSize     = line + 8 + reasonMax
	slotsSize    = headSize + slotsDeep*callSlotSize + dataDeep*slotData + 2*syncSlotSize
)

const dataDeep = ahead + 1

// head is what concerns a rank and no communicator.
type head struct {
	lost   word.Uint32 // lostNot, lostMarking, lostMarked
	news   word.Uint32 // how often others have called Post
	more   word.Uint32 // how many more slots are allocated
	_      [4]byte
	reason reason // why it is lost, by the rank that has set lost
	_      [40]byte
}

// The values of head.lost.
const (
	lostNot     uint32 = iota
	lostMarking        // the reason is being written
	lostMarked
)

// reason is why a rank or a communicator has ended: the code of a sentinel, and a text.
type reason struct {
	code, bytes uint32
	touch       uint64
	text        [reasonMax]byte
}

func (r *reason) set(f *backend.Fault) {
	writes(&r.touch)
	r.code, r.bytes = uint32(backend.Code(f.Sentinel)), uint32(copy(r.text[:], f.Text))
}

func (r *reason) get() *backend.Fault {
	reads(&r.touch)
	return &backend.Fault{Sentinel: sentinel(r.code), Text: string(r.text[:min(int(r.bytes), len(r.text))])}
}

// slots are a rank's arrival slots for the collectives of one communicator. Those of each kind are used in turn,
// so that one can be written while others still read the ones before.
type slots struct {
	id     word.Uint64 // Collective.id, 0 when free
	ended  word.Uint32 // endedFault and endedClosed
	_      [4]byte
	reason reason // why the communicator was broken, or ended with the job
	_      [40]byte
	calls  [slotsDeep]callSlot
	data   [dataDeep][slotData]byte // of the calls, if they do not fit into their slots
	syncs  [2]syncSlot
}

// The bits of slots.ended. A communicator that was broken may be closed later.
const (
	endedFault  = 1 << iota // reason says why
	endedClosed             // the rank has closed it
)

// callSlot is a rank's arrival at a call: the line that is handed over, and where longer data are.
type callSlot struct {
	key   uint64 // id<<32 | sequence number
	print backend.Fingerprint
	small [smallData]byte // data, if they fit
	facts [5]uint64       // addresses and lengths of the buffers
	way   uint32          // of rank 0: how the data go, if they do not fit: see way.go
	took  uint32          // nanoseconds of the rank's last call that was measured, 0: of none
	touch uint64          // for reads and writes
	_     [8]byte
}

// reads and writes come before what touch stands for is read or written. The explorer knows by them who has read what:
// readers may be late, and find it out by the key.
func reads(touch *uint64) {
	if word.Exploring {
		word.LoadUint64(touch)
	}
}

func writes(touch *uint64) {
	if word.Exploring {
		word.StoreUint64(touch, *touch+1)
	}
}

// syncSlot is a rank's arrival at a synchronization inside a collective.
type syncSlot struct {
	key     word.Uint64 // id<<32 | number of the synchronization
	work    uint64      // address and length of the memory that the rank shares
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

const firstSize = headSize + slotsFirst*slotsSize

// Size returns how many bytes the slots of ranks take at the start, and how many more they can take.
func Size(ranks int) (first, more int) {
	return ranks * firstSize, ranks * (slotsMost - slotsFirst) * slotsSize
}

// offset returns the offset of the slots of a rank.
func (b *Board) offset(rank, i int) int {
	if i < slotsFirst {
		return b.cfg.Offset + rank*firstSize + headSize + i*slotsSize
	}
	return b.cfg.More + (rank*(slotsMost-slotsFirst)+i-slotsFirst)*slotsSize
}

func (b *Board) at(rank, i int) *slots { return shmem.At[slots](b.cfg.Segment, b.offset(rank, i)) }

func (b *Board) head(rank int) *head {
	return shmem.At[head](b.cfg.Segment, b.cfg.Offset+rank*firstSize)
}
