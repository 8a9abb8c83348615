package shm

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// comm is one communicator of this rank.
type comm struct {
	match.Members

	e       *engine
	id      uint32
	rank    int
	isWorld bool
	parent  *comm   // of a control communicator, which has no slots, and which no loss ends
	acked   rankSet // world ranks whose loss has been acknowledged and does not end it

	end    atomic.Pointer[backend.Fault] // why it has ended: a rank was lost, or the job failed
	brk    atomic.Pointer[backend.Fault]
	closed atomic.Bool
	gone   []atomic.Bool // ranks that have closed it
	unmade []bool        // ranks that will not look at this rank's slots; nil: none

	// Collectives. One call at a time; see collective.go.
	slotIndex int // of the own slots; -1: none, or given back. Guarded by the engine's lock
	mine      *slots
	slots     []*slots // by rank; nil until found
	seq       uint32
	syncSeq   uint32
	coll      collective
}

// newComm makes a communicator of these world ranks that has acknowledged the losses of some. A
// control communicator acknowledges all.
func (e *engine) newComm(members []int, id uint32, acked rankSet) (*comm, error) {
	return e.enter(&comm{Members: match.NewMembers(members), id: id, acked: acked})
}

// enter adds a communicator to the engine.
func (e *engine) enter(c *comm) (*comm, error) {
	c.e, c.rank = e, c.RankOf(e.me)
	if c.rank < 0 {
		return nil, &backend.Fault{Sentinel: backend.ErrRank, Text: "the caller is not a member"}
	}
	err := e.admit(c)
	if err != nil { // the others may have made it: let them know that they wait in vain
		c.Close()
		return nil, err
	}
	return c, nil
}

// admit assigns slots to a communicator and applies the notices that have come for it. If there are
// no slots left it returns an error, and does the rest all the same.
func (e *engine) admit(c *comm) error {
	e.mu.Lock()
	defer e.unlock()
	c.mine, c.slotIndex = &noSlots, -1
	var err error
	if c.parent == nil {
		err = e.assignSlots(c)
	}
	c.gone = make([]atomic.Bool, c.Size())
	e.progress() // the notices that the others have sent about it
	e.comms[c.id] = c
	e.catchUp(c)
	if f := e.fault.Load(); f != nil {
		c.end.Store(f)
	}
	for r := range e.lost {
		if f := e.lost[r].Load(); f != nil && !c.acked.has(r) {
			c.end.CompareAndSwap(nil, f)
		}
	}
	return err
}

// noSlots stands for the slots of a communicator that has none.
var noSlots slots

// assignSlots gives a communicator arrival slots of this rank. If none are free it reads all that
// is in the rings: the others may have closed communicators that this rank has closed.
func (e *engine) assignSlots(c *comm) error {
	c.slotIndex = slices.Index(e.slotsUsed, false)
	for i := 0; i < 8 && c.slotIndex < 0; i++ {
		e.progress()
		c.slotIndex = slices.Index(e.slotsUsed, false)
	}
	if c.slotIndex < 0 {
		return &backend.Fault{Sentinel: backend.ErrAlloc,
			Text: fmt.Sprintf("this rank has %d open communicators (open until every member closes them), the most of backend shm with %d ranks; close some", len(e.slotsUsed), e.lay.n)}
	}
	e.slotsUsed[c.slotIndex] = true
	c.slots = make([]*slots, c.Size())
	b := e.slotsOf(e.me, c.slotIndex)
	for i := range b.calls {
		b.calls[i].key.Store(0)
		b.syncs[i].key.Store(0)
	}
	c.slots[c.rank], c.mine = b, b
	b.news.Store(0)
	b.id.Store(c.id + 1)
	c.coll.init(c)
	return nil
}

func (e *engine) slotsOf(rank, slot int) *slots {
	return shmem.At[slots](e.seg, e.lay.slotsAt+(rank*e.lay.slots+slot)*slotsSize)
}

// Rank implements backend.Comm.
func (c *comm) Rank() int { return c.rank }

// NodeOf implements backend.Comm: all ranks are on one node.
func (c *comm) NodeOf(int) int { return 0 }

// Caps implements backend.Comm.
func (c *comm) Caps() backend.Caps {
	return backend.Caps{Backend: "shm", Processes: true, SharedMemory: true, Deterministic: true,
		NativeColl: true, SingleCopy: c.e.cma,
		MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"}
}

// pattern returns what a receive matches.
func (c *comm) pattern(source, tag int) match.Env { return c.Pattern(c.id, source, tag) }

// usable returns why no operation can start, nil normally.
func (c *comm) usable() error {
	if f := c.end.Load(); f != nil {
		return f
	}
	if c.mine.news.Load() != 0 && c.brk.Load() == nil {
		c.e.poll()
	}
	if f := c.brk.Load(); f != nil {
		return brokenBy(f)
	}
	if c.closed.Load() {
		return &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator"}
	}
	return nil
}

// closedFault is the error of an operation that was in progress when this rank closed the
// communicator.
func closedFault() *backend.Fault {
	return &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}
}

func brokenBy(f *backend.Fault) error { return &backend.Broken{Cause: f} }

// Derive implements backend.Comm.
func (c *comm) Derive(members []int, id uint32) (backend.Comm, error) {
	d, err := c.e.newComm(c.Some(members), id, c.acked)
	if err != nil {
		return nil, err
	}
	return d, nil
}
