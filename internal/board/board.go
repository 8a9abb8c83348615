package board

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Config describes the memory of a node's slots, and the node's ranks. Ranks are counted on the node.
type Config struct {
	Segment *shmem.Segment
	Offset  int // of the first bytes that Size(len(Ranks)) returns
	More    int // of the others, which are not allocated
	Rank    int
	Ranks   []*shmem.Process
	Copies  bool // the processes may read each other's memory
	Spare   bool // every rank has a processor to itself
	Check   bool // this rank waits for all others in every call
	Wake    func(rank int)
}

// Board is one rank's view of a node's slots. The lock of its engine guards Open, Mark, Collective.Ended and
// Collective.Close.
type Board struct {
	cfg   Config
	own   *head         // this rank's
	users []*Collective // of the own slots; nil: none yet
	area  int           // areaSize
	vain  atomic.Bool   // a Quiesce has waited in vain, and this rank has not arrived at a call since
}

// New returns a rank's view of slots whose memory is zero.
func New(cfg Config) *Board {
	b := &Board{cfg: cfg, users: make([]*Collective, slotsFirst), area: areaSize(len(cfg.Ranks))}
	b.own = b.head(cfg.Rank)
	return b
}

// Mark notes for all ranks of the node that a rank was declared lost, and why. The caller does so before any slots are
// reused because of the loss, so a lost rank that runs again learns of it. Mark returns false if this rank itself was
// declared lost before: then the others go on without this rank.
func (b *Board) Mark(rank int, f *backend.Fault) bool {
	if b.lost() {
		return false
	}
	if h := b.head(rank); h.lost.CompareAndSwap(lostNot, lostMarking) {
		h.reason.set(f)
		h.lost.Store(lostMarked)
	}
	return true
}

// lost reports whether this rank was declared lost.
func (b *Board) lost() bool { return b.own.lost.Load() != lostNot }

// reasonWaits is how many milliseconds a lost rank waits for the reason.
const reasonWaits = 50

// Lost returns why a rank was declared lost, nil if it was not. The rank itself gets a fault as soon as Mark has begun,
// the others once the reason is there, which names the rank. The rank itself tells others what it gets, and so waits for the
// reason, unless the rank that writes it does not run.
func (b *Board) Lost(rank int) *backend.Fault {
	h, waits := b.head(rank), 0
	for h.lost.Load() != lostMarked {
		if rank != b.cfg.Rank || !b.lost() {
			return nil
		}
		if waits++; waits > word.Spins(reasonWaits) {
			return backend.Faultf(backend.ErrPeerLost, "this rank was declared lost")
		}
		time.Sleep(time.Millisecond)
	}
	return h.reason.get()
}

// A Comm is a communicator whose ranks all have slots.
type Comm interface {
	Rank() int
	Size() int
	Await(b *backend.Bound, p backend.Pending) error

	// Over returns why every operation ends, or nil: the error of the job, that with which the communicator
	// was broken, or that this rank has closed it (ErrClosed), in this order.
	Over() error
	// Gone reports whether another rank has closed it, or is lost.
	Gone(rank int) bool
	GoneFault(rank int) error
	// Refresh takes in what has arrived, so that an error names its cause.
	Refresh()
	// Excluded ends the job on this rank, which was declared lost.
	Excluded(why *backend.Fault)
	// Break breaks the communicator on all ranks, BreakHere on this one.
	Break(err error)
	BreakHere(f *backend.Fault)
	// Suspect marks a rank lost whose memory cannot be read.
	Suspect(rank int, err error)
	// Waits is called when the caller begins to wait for the others in a call, and with nil when it has ended.
	Waits(call *backend.Call)
	// Mixed compares a call in which this rank did not wait with the messages that have arrived.
	Mixed(seq uint32, made backend.Fingerprint)
}

// Open gives a communicator slots of this rank. ranks are its members on the node.
func (b *Board) Open(c Comm, id uint32, ranks []int) (*Collective, error) {
	return b.open(c, uint64(id)+1, ranks)
}

func (b *Board) open(c Comm, id uint64, ranks []int) (*Collective, error) {
	i := slices.IndexFunc(b.users, func(s *Collective) bool { return s == nil || s.closed && s.shut(gateUnused, gateOutside) })
	if i < 0 {
		i = len(b.users)
		if err := b.grow(); err != nil {
			return nil, &backend.Fault{Sentinel: backend.ErrAlloc, Text: err.Error()}
		}
	}
	own := b.at(b.cfg.Rank, i)
	for k := range own.calls {
		word.StoreUint64(&own.calls[k].key, 0)
	}
	for k := range own.syncs {
		own.syncs[k].key.Store(0)
	}
	own.ended.Store(0)
	own.done.Store(0)
	s := &Collective{
		c: c, b: b, id: id, ranks: ranks, ownSlots: ownSlots{mine: own, index: i},
		slots: make([]atomic.Pointer[slots], len(ranks)), areas: areas{of: make([]rankAreas, len(ranks))},
		progress: progress{compared: comparison{upTo: make([]uint32, len(ranks))}},
	}
	s.home = s
	s.slots[c.Rank()].Store(own)
	s.side.s, s.side.mem.Block, s.side.ended, s.side.moved = s, fetchBlock, s.side.end, s.moved
	b.users[i] = s
	own.id.Store(id)
	return s, nil
}

// grow allocates more slots of this rank.
func (b *Board) grow() error {
	n := len(b.users)
	if n == slotsMost {
		return fmt.Errorf("this rank has %d open communicators, with their persistent collectives (open until every member closes them), the most on a node; close some", n)
	}
	if err := b.cfg.Segment.Allocate(b.offset(b.cfg.Rank, n), slotsFirst*slotsSize); err != nil {
		return fmt.Errorf("arrival slots for more than %d communicators: %w", n, err)
	}
	b.users = append(b.users, make([]*Collective, slotsFirst)...)
	b.own.more.Add(slotsFirst)
	return nil
}
