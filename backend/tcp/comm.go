package tcp

import (
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// comm is one communicator of this rank.
type comm struct {
	e       *engine
	id      uint32
	rank    int
	world   []int       // world rank of each rank
	ranks   map[int]int // the inverse, nil if world is the identity
	isWorld bool

	brk    atomic.Pointer[backend.Fault]
	closed atomic.Bool
	gone   []atomic.Bool // ranks that have closed it
}

func (e *engine) newComm(members []int, id uint32, isWorld bool) (*comm, error) {
	c := &comm{e: e, id: id, world: members, isWorld: isWorld, rank: slices.Index(members, e.me)}
	if c.rank < 0 {
		return nil, &backend.Fault{Sentinel: backend.ErrRank, Text: "the caller is not a member"}
	}
	if !isWorld {
		c.ranks = make(map[int]int, len(members))
		for r, w := range members {
			c.ranks[w] = r
		}
	}
	c.gone = make([]atomic.Bool, len(members))
	e.mu.Lock()
	defer e.unlock()
	e.progress() // what the others have said about it already
	e.comms[id] = c
	e.catchUp(c)
	return c, nil
}

// Rank implements backend.Comm.
func (c *comm) Rank() int { return c.rank }

// Size implements backend.Comm.
func (c *comm) Size() int { return len(c.world) }

// WorldRank implements backend.Comm.
func (c *comm) WorldRank(rank int) int { return c.world[rank] }

// NodeOf implements backend.Comm: a node is the lowest of the ranks that can share memory.
func (c *comm) NodeOf(rank int) int { return c.e.peers[c.world[rank]].node }

// HostOf implements backend.Hoster.
func (c *comm) HostOf(rank int) string { return c.e.peers[c.world[rank]].host }

// Caps implements backend.Comm.
func (c *comm) Caps() backend.Caps {
	return backend.Caps{Backend: "tcp", Processes: true, SharedMemory: shmem.Supported, Deterministic: true,
		MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"}
}

// rankOf returns the rank here of a world rank; -1 if it is no member.
func (c *comm) rankOf(world int) int {
	if c.ranks == nil {
		return world
	}
	if r, ok := c.ranks[world]; ok {
		return r
	}
	return -1
}

// pattern is what a receive looks for.
func (c *comm) pattern(source, tag int) match.Env {
	env := match.Env{Ctx: c.id, Source: backend.AnySource, Tag: int32(tag)}
	if source >= 0 {
		env.Source = int32(c.world[source])
	}
	return env
}

// usable returns why no operation can begin, nil normally.
func (c *comm) usable() error {
	if f := c.e.fault.Load(); f != nil {
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
	world := make([]int, len(members))
	for i, r := range members {
		world[i] = c.world[r]
	}
	d, err := c.e.newComm(world, id, false)
	if err != nil {
		return nil, err
	}
	return d, nil
}
