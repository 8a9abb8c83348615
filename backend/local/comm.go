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

	group *group // nil until this rank has joined it
	me    *rank
	rank  int

	spare word.Pointer[op] // a record for the next operation

	agree.Recovery

	// The fields below belong to the collective in progress.
	call    *backend.Call
	bound   *backend.Bound
	inline  bool   // all inputs are copied and published
	round   uint64 // collectives made
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
func (c *Comm) Derive(members []int, id uint32) (backend.Comm, error) {
	return c.derive(c.group.Some(members), id, c.group.acknowledged, nil)
}

// derive makes a communicator of some of the job's ranks. It has acknowledged the given
// losses, and is the control communicator of controls if that is not nil.
func (c *Comm) derive(world []int, id uint32, acknowledged []int, controls *group) (backend.Comm, error) {
	j := c.group.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.gone.Load() {
		return nil, &backend.Fault{Sentinel: backend.ErrClosed}
	}
	if c.group.isControl {
		return nil, backend.Faultf(backend.ErrNotSupported, "a control communicator cannot have derived ones")
	}
	d, err := j.join(groupKey{id, world[0]}, world, c.me.id, acknowledged, controls)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// peer returns the rank that has rank i in c.
func (c *Comm) peer(i int) *rank { return c.group.job.ranks[c.group.World[i]] }
