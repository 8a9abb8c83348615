package tcp

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// comm is one communicator of this rank.
type comm struct {
	match.Members

	e            *engine
	id           uint32
	rank         int
	isWorld      bool
	parent       *comm        // of a control communicator, which no loss ends; a rank that has closed parent does not use it
	acknowledged map[int]bool // world ranks whose loss is acknowledged; shared, never changed

	fault  atomic.Pointer[backend.Fault] // the loss that has ended it, or what has ended all
	brk    atomic.Pointer[backend.Fault]
	closed atomic.Bool
	gone   []atomic.Bool // ranks that have closed it
}

// newComm registers a communicator whose members, id, and rank are set.
func (e *engine) newComm(c *comm) {
	c.e = e
	c.gone = make([]atomic.Bool, len(c.World))
	e.mu.Lock()
	defer e.unlock()
	e.progress() // notices about it may have arrived
	c.fault.Store(e.fault.Load())
	for _, r := range e.lostInOrder {
		if !c.acknowledges(r) {
			c.fault.CompareAndSwap(nil, e.losses[r])
		}
	}
	e.comms[c.id] = c
	e.catchUp(c)
	e.dropForeign(c)
}

var errForeign = errors.New("a message to a communicator of which it is not a member")

// foreign reports whether a receive that a rank's message matches is of a communicator that the rank is no
// member of: of those that name their source none is.
func (o *op) foreign(world int) bool {
	return o.node.Env.Source == backend.AnySource && o.comm.RankOf(world) < 0
}

// dropForeign gives up the ranks that have sent to a communicator before it was made here, and are no
// members of it.
func (e *engine) dropForeign(c *comm) {
	e.arrived.Each(func(n *match.Node) bool {
		if from := int(n.Env.Source); n.Env.Ctx == c.id && c.RankOf(from) < 0 {
			e.arrived.Remove(n)
			e.putMsg(n.Owner.(*msg))
			e.links[from].wrong(errForeign)
		}
		return true
	})
	if e.lossesPending() {
		e.handleLosses()
	}
}

// some returns a communicator of some of c's ranks, for newComm.
func (c *comm) some(members []int, id uint32) (*comm, error) {
	world := c.Some(members)
	rank := slices.Index(world, c.e.me)
	if rank < 0 {
		return nil, &backend.Fault{Sentinel: backend.ErrRank, Text: "the caller is not a member"}
	}
	return &comm{Members: match.NewMembers(world), id: id, rank: rank, acknowledged: c.acknowledged}, nil
}

// Rank implements backend.Comm.
func (c *comm) Rank() int { return c.rank }

// NodeOf implements backend.Comm: a node is the lowest of the ranks that can share memory.
func (c *comm) NodeOf(rank int) int { return c.e.peers[c.World[rank]].node }

// HostOf implements backend.Hoster.
func (c *comm) HostOf(rank int) string { return c.e.peers[c.World[rank]].host }

// Caps implements backend.Comm.
func (c *comm) Caps() backend.Caps {
	return backend.Caps{Backend: "tcp", Processes: true, SharedMemory: shmem.Supported, Deterministic: true,
		MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"}
}

// pattern is what a receive looks for.
func (c *comm) pattern(source, tag int) match.Env { return c.Pattern(c.id, source, tag) }

// usable returns why no operation can begin, nil normally.
func (c *comm) usable() error {
	if f := c.fault.Load(); f != nil {
		return f
	}
	if f := c.brk.Load(); f != nil {
		return brokenBy(f)
	}
	if c.closed.Load() {
		return &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator"}
	}
	return nil
}

func brokenBy(f *backend.Fault) error { return &backend.Broken{Cause: f} }

// Derive implements backend.Comm.
func (c *comm) Derive(members []int, id uint32) (backend.Comm, error) {
	d, err := c.some(members, id)
	if err != nil {
		return nil, err
	}
	c.e.newComm(d)
	return d, nil
}
