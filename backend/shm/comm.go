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
	parent  *comm   // of a shelter: it has no board, and no loss ends it
	excused rankSet // world ranks whose loss does not end it

	end    atomic.Pointer[backend.Fault] // it is over: a rank was lost, or the job
	brk    atomic.Pointer[backend.Fault]
	closed atomic.Bool
	gone   []atomic.Bool // ranks that have closed it
	unmade []bool        // ranks that will not look at this rank's board; nil: none

	// Collectives. One call at a time; see collective.go.
	slotIndex int // own board; -1: none, or given back. Guarded by the engine's lock
	mine      *slots
	slots     []*slots // by rank; nil until found
	seq       uint32
	syncSeq   uint32
	coll      collective
}

// newComm makes a communicator of these world ranks that excuses the losses of
// some. A shelter excuses all of them.
func (e *engine) newComm(members []int, id uint32, excused rankSet) (*comm, error) {
	return e.enter(&comm{Members: match.NewMembers(members), id: id, excused: excused})
}

// enter puts a communicator to use.
func (e *engine) enter(c *comm) (*comm, error) {
	c.e, c.rank = e, c.RankOf(e.me)
	if c.rank < 0 {
		return nil, &backend.Fault{Sentinel: backend.ErrRank, Text: "the caller is not a member"}
	}
	err := e.admit(c)
	if err != nil { // the others may have made it, and are told that they wait in vain
		c.Close()
		return nil, err
	}
	return c, nil
}

// admit gives a communicator a board, and takes in what is known of it already. An
// error is that there is no board; the rest is done all the same.
func (e *engine) admit(c *comm) error {
	e.mu.Lock()
	defer e.unlock()
	c.mine, c.slotIndex = &noSlots, -1
	var err error
	if c.parent == nil {
		err = e.assignSlots(c)
	}
	c.gone = make([]atomic.Bool, c.Size())
	e.progress() // what the others have said about it already
	e.comms[c.id] = c
	e.catchUp(c)
	if f := e.fault.Load(); f != nil {
		c.end.Store(f)
	}
	for r := range e.lost {
		if f := e.lost[r].Load(); f != nil && !c.excused.has(r) {
			c.end.CompareAndSwap(nil, f)
		}
	}
	return err
}

// noBoard stands for the board of a communicator that has none.
var noSlots slots

// giveBoard gives a communicator a board of this rank's. Where there is none it reads
// all that is in the rings: the others may have closed what this rank has closed.
func (e *engine) assignSlots(c *comm) error {
	c.slotIndex = slices.Index(e.slotsUsed, false)
	for i := 0; i < 8 && c.slotIndex < 0; i++ {
		e.progress()
		c.slotIndex = slices.Index(e.slotsUsed, false)
	}
	if c.slotIndex < 0 {
		return &backend.Fault{Sentinel: backend.ErrAlloc,
			Text: fmt.Sprintf("this rank has %d communicators that it or another member has not closed, the most that backend shm has room for with %d ranks: close some", len(e.slotsUsed), e.lay.n)}
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

// pattern is what a receive looks for.
func (c *comm) pattern(source, tag int) match.Env { return c.Pattern(c.id, source, tag) }

// usable returns why no operation can begin, nil normally.
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

// closedFault is the error of an operation that was under way when this rank closed
// the communicator.
func closedFault() *backend.Fault {
	return &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}
}

func brokenBy(f *backend.Fault) error { return &backend.Broken{Cause: f} }

// Derive implements backend.Comm.
func (c *comm) Derive(members []int, id uint32) (backend.Comm, error) {
	d, err := c.e.newComm(c.Some(members), id, c.excused)
	if err != nil {
		return nil, err
	}
	return d, nil
}
