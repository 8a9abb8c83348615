package board

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Config describes the memory of a node's slots, and the node's ranks. Ranks are counted on the node.
type Config struct {
	Segment *shmem.Segment
	Offset  int // of the first bytes that Size(len(PIDs)) returns
	More    int // of the others, which are not allocated
	Rank    int
	PIDs    []int
	Copies  bool // the processes may read each other's memory
	Spare   bool // every rank has a processor to itself
	Check   bool // this rank waits for all others in every call
	Wake    func(rank int)
}

// Board is one rank's view of a node's slots. The lock of its engine guards Open and Collective.Close.
type Board struct {
	cfg  Config
	own  *slots        // of this rank, the first
	used []bool        // own slots in use
	seen atomic.Uint32 // of news
}

// New returns a rank's view of slots whose memory is zero.
func New(cfg Config) *Board {
	b := &Board{cfg: cfg, used: make([]bool, slotsFirst)}
	b.own = b.at(cfg.Rank, 0)
	return b
}

// Mark notes for all ranks of the node that a rank was declared lost. That is done before any slots are
// used again because of it, so a rank that runs again finds it out.
func (b *Board) Mark(rank int) { b.at(rank, 0).lost.Store(1) }

// lost reports whether this rank was declared lost.
func (b *Board) lost() bool { return b.own.lost.Load() != 0 }

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

// Post notes that a message for a rank of the node says that a communicator is broken. The rank does not
// read messages in collectives that find all ranks at once.
func (b *Board) Post(rank int) { b.at(rank, 0).news.Add(1) }

// News reports whether another rank has called Post for this one since the last call.
func (b *Board) News() bool {
	now := b.own.news.Load()
	return now != b.seen.Load() && now != b.seen.Swap(now)
}

// Open gives a communicator slots of this rank. ranks are its members on the node.
func (b *Board) Open(c Comm, id uint32, ranks []int) (*Collective, error) {
	return b.open(c, uint64(id)+1, ranks)
}

func (b *Board) open(c Comm, id uint64, ranks []int) (*Collective, error) {
	i := slices.Index(b.used, false)
	if i < 0 {
		i = len(b.used)
		if err := b.grow(); err != nil {
			return nil, &backend.Fault{Sentinel: backend.ErrAlloc, Text: err.Error()}
		}
	}
	b.used[i] = true
	own := b.at(b.cfg.Rank, i)
	for k := range own.calls {
		atomic.StoreUint64(&own.calls[k].key, 0)
	}
	for k := range own.syncs {
		own.syncs[k].key.Store(0)
	}
	s := &Collective{c: c, b: b, id: id, index: i, mine: own, ranks: ranks, slots: make([]*slots, len(ranks)), passed: make([]uint32, len(ranks))}
	s.slots[c.Rank()] = own
	s.side.s, s.side.mem.Block, s.side.ended = s, fetchBlock, s.side.end
	own.id.Store(id)
	return s, nil
}

// grow allocates more slots of this rank.
func (b *Board) grow() error {
	n := len(b.used)
	if n == slotsMost {
		return fmt.Errorf("this rank has %d open communicators, with their persistent collectives (open until every member closes them), the most on a node; close some", n)
	}
	if err := b.cfg.Segment.Allocate(b.offset(b.cfg.Rank, n), slotsFirst*slotsSize); err != nil {
		return fmt.Errorf("arrival slots for more than %d communicators: %w", n, err)
	}
	b.used = append(b.used, make([]bool, slotsFirst)...)
	b.at(b.cfg.Rank, 0).more.Add(slotsFirst)
	return nil
}

// Close gives the slots back, which no rank reads any more. With unused it does so only if this rank has not
// arrived at any collective: no other rank can be reading them then, even if one never makes the communicator.
func (s *Collective) Close(unused bool) {
	for _, p := range s.persistent {
		p.Close(unused)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index >= 0 && !(unused && s.used) {
		s.mine.id.Store(0)
		s.b.used[s.index] = false
		s.index = -1
	}
}
