package local

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// job is the ranks of one New and the communicators among them.
type job struct {
	ranks []*rank
	spins int // how often a waiter checks before it parks; 0 if ranks share processors
	world *group

	harmed atomic.Bool // a rank is lost, or the job has ended

	mu     sync.Mutex // guards the fields below
	groups map[groupKey]*group
	losses []loss  // the first one first
	ended  *ending // for all communicators
}

// groupKey names a communicator. Communicators that share a rank have different
// ids; others differ in their first member.
type groupKey struct {
	id    uint32
	first int32
}

// rank is what one rank has, whatever the communicator.
type rank struct {
	job *job
	id  int32 // world rank

	onWait func() // nil: none registered

	lost atomic.Pointer[ending] // set once it is lost

	mu      sync.Mutex  // guards the fields below
	posted  match.Queue // receives waiting for a message
	arrived match.Queue // messages waiting for a receive
	held    match.Queue // messages taken out by Mprobe
	free    *op         // records with store for short messages
	frees   int
	stored  int // bytes of messages copied and not received

	probing  atomic.Int32 // goroutines that wait for a message to arrive
	sleepers sleepers
	notices  notices

	commsMu sync.Mutex
	comms   []*Comm // not closed
}

// group is one communicator: what its ranks share.
type group struct {
	job      *job
	key      groupKey
	world    []int32 // world ranks of the members
	index    []int32 // rank of a world rank, -1 if it is no member
	end      atomic.Pointer[ending]
	slots    []slot
	arrivals arrivals
	gone     atomic.Int32 // members that have closed it; of a control communicator also those that are lost or have closed its parent

	acknowledged []int32 // world ranks whose losses do not end it
	control      *group  // its control communicator, guarded by job.mu
	isControl    bool    // no loss ends it

	area atomic.Pointer[shmem.Area] // the last one that Share has made
}

// New makes a job of n ranks and returns the first communicator's end of each.
// Every rank must Close its own.
func New(n int) []backend.Comm {
	j := &job{groups: make(map[groupKey]*group)}
	if procs := runtime.GOMAXPROCS(0); procs > 1 && n <= procs {
		j.spins = spins
	}
	world := make([]int32, n)
	for i := range n {
		world[i] = int32(i)
		j.ranks = append(j.ranks, newRank(j, int32(i)))
	}
	comms := make([]backend.Comm, n)
	for i := range n {
		c, _ := j.join(groupKey{}, world, int32(i), nil, nil)
		comms[i], j.world = c, c.group
	}
	return comms
}

func newRank(j *job, id int32) *rank {
	return &rank{job: j, id: id}
}

// join returns the end that world rank me has of the communicator of the given
// members. The first member that calls it makes the group, which has acknowledged the
// given losses, and is the control communicator of controls if that is not nil.
func (j *job) join(key groupKey, world []int32, me int32, acknowledged []int32, controls *group) (*Comm, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	g := j.groups[key]
	if g == nil {
		g = &group{job: j, key: key, world: world, index: make([]int32, len(j.ranks)), slots: make([]slot, len(world)), acknowledged: acknowledged}
		for i := range g.index {
			g.index[i] = -1
		}
		for i, w := range world {
			g.index[w] = int32(i)
		}
		for i := range g.slots {
			g.slots[i].init()
		}
		if controls != nil {
			g.isControl, controls.control = true, g
			for i, w := range world {
				if j.ranks[w].lost.Load() != nil || controls.slots[i].gone.Load() {
					g.slots[i].gone.Store(true)
					g.gone.Add(1)
				}
			}
		}
		if e := j.verdict(g); e != nil {
			g.finish(e)
		}
		j.groups[key] = g
	} else if !slices.Equal(g.world, world) {
		return nil, faultf(backend.ErrComm, "communicator %d was made with other members by another rank", key.id)
	}
	c := &Comm{group: g, me: j.ranks[me], rank: int(g.index[me])}
	c.slot = &g.slots[c.rank]
	c.me.commsMu.Lock()
	c.me.comms = append(c.me.comms, c)
	c.me.commsMu.Unlock()
	return c, nil
}
