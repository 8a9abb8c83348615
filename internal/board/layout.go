package board

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// The protocol of the arrival slots. A rank alone writes the words of its own slots:
//
//	id     the communicator that has the slots: open stores it last, shut sets it to 0 first
//	key    of a call slot: 0 before anything else in the slot changes, and the number of the call after
//	       everything else; 0 again, after reason, if the call fails (retract)
//	key    of a sync slot: the number of the synchronization, after everything else in the slot; 0 as above
//	ended  says that this rank's communicator has ended: Ended stores it after reason, and then changes news of all ranks
//	done   the number of a neighborhood call: moved stores it when this rank has published what is wrong with it
//	key    of found: the number of a call of which this rank has compared all ranks' calls, after the result
//
// In a rank's head, the rank itself writes more. Every rank writes news (Ended), others lost with its reason (Mark). Every
// rank writes finder of rank 0's slots (tell). It only says where to look for found, so it may be of another call, or of
// another communicator.
//
// A rank arrives at call s only after all ranks have arrived at call s-ahead, and it has compared that call of all
// ranks. The slot that it then overwrites, and the one whose key it sets to 0 for call s+1, have calls before s-2*ahead.
// The data that it overwrites, in the slots, areas or found, are of a call before s-ahead. No rank needs either any more. When a rank
// arrived at call s-ahead, it had taken the data of all calls before s-ahead, and had compared all calls before s-2*ahead.
//
// That holds while the communicator lasts on all ranks. But the communicator may end on one rank while another still
// reads: the first has given a call up, or all ranks have closed the communicator while a goroutine is in a call, or
// the reader was stopped and declared lost. So a rank that has taken data from a slot looks at the id again, and a rank
// that has copied a buffer looks at the key again. A goroutine that compares slots beside the calls looks at the key again
// too. No id and no key is used twice.
//
// Invariant: a result without an error was computed from slots whose id was still the communicator's after they were
// read, and from buffers whose key still had the number of the call then. Before a rank takes a key back it stores the
// reason, so a rank that misses the key finds it.

const (
	line      = 64
	smallData = 32        // bytes of data in a call slot
	slotData  = 2048      // bytes of data beside it
	areaMost  = 32 << 10  // bytes of data in an area
	areasMost = 128 << 10 // in the areas of all ranks that one call uses: each rank may read them all
	reasonMax = 952

	// Sizes of the structures below; a test compares them with the compiler's.
	callSlotSize = 2 * line
	syncSlotSize = headSize
	headSize     = line + 8 + reasonMax
	slotsSize    = headSize + slotsDeep*callSlotSize + dataDeep*slotData + 2*syncSlotSize + (dataDeep+1)*line
)

const (
	dataDeep  = ahead + 1
	areasDeep = dataDeep + 1 // those of dataDeep calls, and what is left at the end if it is too short for the next
)

// head is what a rank shares apart from communicators.
type head struct {
	lost   word.Uint32 // lostNot, lostMarking, lostMarked
	news   word.Uint32 // how often ranks have published why a communicator of this rank has ended
	more   word.Uint32 // how many more slots are allocated
	_      [4]byte
	reason reason // why it is lost; the rank that has set lost writes it
	_      [40]byte
}

// The values of head.lost.
const (
	lostNot     uint32 = iota
	lostMarking        // the reason is being written
	lostMarked
)

// reason is why a rank or a communicator has ended: a fault in bytes.
type reason struct {
	bytes uint32
	_     uint32
	touch uint64
	fault [reasonMax]byte
}

func (r *reason) set(f *backend.Fault) {
	writes(&r.touch)
	r.bytes = uint32(copy(r.fault[:], f.Encode(reasonMax)))
}

func (r *reason) get() *backend.Fault {
	reads(&r.touch)
	return backend.DecodeFault(r.fault[:min(int(r.bytes), len(r.fault))])
}

// slots are a rank's arrival slots for the collectives of one communicator. The slots of each kind are used in turn, so
// a rank can write one while others still read the slots before it.
type slots struct {
	id     word.Uint64 // Collective.id, 0 when free
	ended  word.Uint32 // bits: endedFault, endedClosed
	done   word.Uint32 // the last neighborhood call whose messages have arrived here
	reason reason      // why the communicator was broken, or ended with the job
	_      [40]byte
	calls  [slotsDeep]callSlot
	data   [dataDeep][slotData]byte // of the calls, if they do not fit into their slots
	syncs  [2]syncSlot
	found  [dataDeep]found
	finder uint64 // a rank's number of a call<<32 | the rank, which has found all ranks arrived at this call
	_      [56]byte
}

// The bits of slots.ended. A communicator that was broken may be closed later.
const (
	endedFault  = 1 << iota // reason says why
	endedClosed             // the rank has closed it
)

// callSlot is a rank's arrival at a call: the call's fingerprint, short data, and where longer data are.
type callSlot struct {
	key   uint64 // id<<32 | sequence number
	print backend.Fingerprint
	small [smallData]byte // data, if they fit
	facts [5]uint64       // addresses and lengths of the buffers
	way   uint32          // how data go that do not fit: see way.go
	took  uint32          // nanoseconds that the rank's last measured call took; 0: none was measured
	touch uint64          // for reads and writes
	_     [8]byte
}

// reads and writes are called before the data beside touch are read or written. They tell the explorer which version a
// rank reads. They report no race: a reader may be late, and learns that by the key.
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
	reason  reason // the error that it found; no bytes: none
	_       [32]byte
}

// found says that a rank has compared all ranks' calls with its own, and contains their result.
type found struct {
	key    uint64 // id<<32 | sequence number
	touch  uint64
	result [smallData]byte
	_      [16]byte
}

// slotsMost is how many communicators a rank can have slots for. Memory for slotsFirst of them is allocated at the
// start, and for slotsFirst more at a time.
const (
	slotsMost  = 1024
	slotsFirst = 2
)

// The heads of all ranks come first, then their first slots, then their second, and so on: where ranks have one
// communicator, each maps as few pages as it can.

// Size returns how many bytes the slots of ranks take at the start, and how many more they can take.
func Size(ranks int) (first, more int64) {
	n := int64(ranks)
	return n * (headSize + slotsFirst*slotsSize), n * ((slotsMost-slotsFirst)*slotsSize + slotsMost*areasDeep*int64(areaSize(ranks)))
}

// areaSize returns how long the areas are that slots have besides, for data of middle length. A rank allocates them
// when it first needs them.
func areaSize(ranks int) int {
	n := areaMost
	for n > slotData && n*ranks > areasMost {
		n /= 2
	}
	return n
}

// areas returns the memory of a rank's areas, which lie in it one after the other.
func (b *Board) areas(rank, i int) (off, n int) {
	n = areasDeep * areaSize(len(b.cfg.Ranks))
	return b.cfg.More + len(b.cfg.Ranks)*(slotsMost-slotsFirst)*slotsSize + (rank*slotsMost+i)*n, n
}

// offset returns the offset of the slots of a rank.
func (b *Board) offset(rank, i int) int {
	if n := len(b.cfg.Ranks); i < slotsFirst {
		return b.cfg.Offset + n*headSize + (i*n+rank)*slotsSize
	}
	return b.cfg.More + (rank*(slotsMost-slotsFirst)+i-slotsFirst)*slotsSize
}

func (b *Board) at(rank, i int) *slots { return shmem.At[slots](b.cfg.Segment, b.offset(rank, i)) }

func (b *Board) head(rank int) *head {
	return shmem.At[head](b.cfg.Segment, b.cfg.Offset+rank*headSize)
}
