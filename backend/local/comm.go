package local

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Comm is one rank's end of a communicator. It is safe for concurrent use by
// many goroutines; collectives come one at a time.
type Comm struct {
	slot // what the other ranks see of it

	// Whoever completes an operation reads these.
	group *group // nil until this rank has joined it
	me    *rank
	rank  int

	agree.Recovery

	spare word.Pointer[op] // a record for the next operation

	// The fields below belong to the collective in progress.
	call    *backend.Call
	bound   *backend.Bound
	inline  bool   // all inputs are copied and published
	small   bool   // in the lines
	made    uint64 // collectives
	round   uint64 // the last in which this rank has arrived
	waits   uint   // for a round
	shares  bool   // the last one lasted until a yield
	theirs  []byte // for the other rank's operand
	scratch direct.Scratch

	_ [64]byte
}

var (
	_ agree.Comm          = (*Comm)(nil)
	_ backend.Recovery    = (*Comm)(nil)
	_ backend.Collectives = (*Comm)(nil)
)

// Rank implements backend.Comm.
func (c *Comm) Rank() int { return c.rank }

// Size implements backend.Comm.
func (c *Comm) Size() int { return c.group.Size() }

// Caps implements backend.Comm.
func (c *Comm) Caps() backend.Caps {
	return backend.Caps{Backend: "local", SharedMemory: true, Deterministic: true, NativeColl: true, SingleCopy: true,
		MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"}
}

// WorldRank implements backend.Comm.
func (c *Comm) WorldRank(rank int) int { return c.group.WorldRank(rank) }

// NodeOf implements backend.Comm: all ranks are on one node.
func (c *Comm) NodeOf(int) int { return 0 }

// HostOf implements backend.Comm.
func (c *Comm) HostOf(int) string { return "" }

// Diagnostics implements backend.Comm.
func (c *Comm) Diagnostics() []string { return nil }

// Derive implements backend.Comm.
func (c *Comm) Derive(_ *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	return c.derive(c.group.Some(members), id, c.group.acknowledged)
}

// Settled implements backend.Comm. All ranks share one group, which knows who has closed it.
func (c *Comm) Settled(uint32) {}

// derive makes a communicator of some of the job's ranks, which has acknowledged the given losses.
func (c *Comm) derive(world []int, id uint32, acknowledged []int) (backend.Comm, error) {
	j := c.group.job
	j.mu.Lock()
	if c.gone.Load() {
		j.mu.Unlock()
		return nil, c.group.own(c.rank)
	}
	d, err := j.join(groupKey{id, world[0]}, world, c.me.id, acknowledged, c.group)
	j.mu.Unlock()
	return d, err
}

// peer returns the rank that has rank i in c.
func (c *Comm) peer(i int) *rank { return c.group.job.ranks[c.group.World[i]] }
