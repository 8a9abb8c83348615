package local

import (
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
)

// Comm is one rank's end of a communicator. It is safe for concurrent use by
// many goroutines; collectives come one at a time.
type Comm struct {
	group *group
	me    *rank
	rank  int
	slot  *slot // this rank's place at the meetings

	spare  atomic.Pointer[op] // a record ready for use
	closed atomic.Bool

	// What follows belongs to the collective in progress.
	call    *backend.Call
	bound   *backend.Bound
	began   time.Time // when its data began to move, if that is limited
	turn    uint64    // collectives made
	scratch direct.Scratch
}

var (
	_ backend.Survivor = (*Comm)(nil)
	_ backend.Native   = (*Comm)(nil)
)

// Rank implements backend.Comm.
func (c *Comm) Rank() int { return c.rank }

// Size implements backend.Comm.
func (c *Comm) Size() int { return len(c.group.world) }

// Caps implements backend.Comm.
func (c *Comm) Caps() backend.Caps {
	return backend.Caps{Backend: "local", SharedMemory: true, Deterministic: true, NativeColl: true, SingleCopy: true,
		MaxTag: backend.MaxTag, CancelSend: true, Checked: true, Persistent: "schedules"}
}

// WorldRank implements backend.Comm.
func (c *Comm) WorldRank(rank int) int { return int(c.group.world[rank]) }

// NodeOf implements backend.Comm: all ranks are on one node.
func (c *Comm) NodeOf(int) int { return 0 }

// Derive implements backend.Comm.
func (c *Comm) Derive(members []int, id uint32) (backend.Comm, error) {
	return c.derive(members, id, c.group.excused, nil)
}

// derive makes the communicator of some of c's ranks that excuses losses, and shelters another if
// that is not nil.
func (c *Comm) derive(members []int, id uint32, excused []int32, shelters *group) (backend.Comm, error) {
	if c.closed.Load() {
		return nil, &backend.Fault{Sentinel: backend.ErrClosed}
	}
	if c.group.shelter {
		return nil, faultf(backend.ErrNotSupported, "nothing is made from a shelter")
	}
	world := make([]int32, len(members))
	for i, m := range members {
		world[i] = c.group.world[m]
	}
	d, err := c.group.job.join(groupKey{id, world[0]}, world, c.me.id, excused, shelters)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// peer returns the rank that has rank i in c.
func (c *Comm) peer(i int) *rank { return c.group.job.ranks[c.group.world[i]] }
