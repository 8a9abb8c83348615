package local

import (
	"cmp"
	"maps"
	"runtime"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/word"
)

// job is the ranks of one New and the communicators among them.
type job struct {
	ranks []*rank
	spins int // how often a waiter checks before it parks; 0 if ranks share processors
	world *group

	mu     word.Mutex // guards the fields below
	groups map[groupKey]*group
	losses []loss // the first one first
}

// all returns the communicators there are, in an order that is the same in every run. j.mu is held.
func (j *job) all() []*group {
	return slices.SortedFunc(maps.Values(j.groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.key.id, b.key.id), cmp.Compare(a.key.first, b.key.first))
	})
}

// groupKey names a communicator. Communicators that share a rank have different
// ids; others differ in their first member.
type groupKey struct {
	id    uint32
	first int
}

// rank is what one rank has, whatever the communicator.
type rank struct {
	job *job
	id  int // world rank

	crew wait.Crew // its goroutines that wait; all follow, because there are no links to sleep on

	lost word.Pointer[ending] // set once it is lost

	mu      word.Mutex  // guards the fields below
	posted  match.Queue // receives waiting for a message
	arrived match.Queue // messages waiting for a receive
	held    match.Queue // messages taken out by Mprobe
	free    *op         // records with store for short messages
	frees   int
	stored  int // bytes of messages copied and not received

	notices notices
}

// group is one communicator: what its ranks share.
//
//	word           is set once, by
//	end            Break; Abort and a loss, in all groups that have not acknowledged it
//	gone of a slot Close of the rank; Close of the world, in all groups that it is a member of
//	               in a control communicator also Close of the other one, and the loss of the rank
//
// Invariant: losses and departures are told to all groups at once under job.mu, and a new group inherits them
// there. An operation looks at both words under the lock of its queue, and after a change somebody sweeps all
// queues: no operation stays behind.
type group struct {
	match.Members
	job      *job
	key      groupKey
	end      word.Pointer[ending]
	ends     []Comm // by rank
	arrivals arrivals
	readers  gate.Gate  // the ranks that may be reading the buffers of others; shut when a rank gives up
	gone     word.Int32 // members whose slots say that they are gone

	acknowledged []int  // world ranks whose losses do not end it
	control      *group // its control communicator, guarded by job.mu
	isControl    bool   // no loss ends it

	area word.Pointer[shmem.Area] // the last one that Share has made
}

// New makes a job of n ranks and returns the first communicator's end of each.
// Every rank must Close its own.
func New(n int) []backend.Comm {
	j := &job{groups: make(map[groupKey]*group)}
	if procs := runtime.GOMAXPROCS(0); procs > 1 && n <= procs {
		j.spins = spins
	}
	world := make([]int, n)
	for i := range world {
		world[i] = i
		r := &rank{job: j, id: i}
		r.crew.Shut()
		j.ranks = append(j.ranks, r)
	}
	comms := make([]backend.Comm, n)
	for i := range comms {
		c, _ := j.join(groupKey{}, world, i, nil, nil) // nobody else knows the job yet
		comms[i], j.world = c, c.group
	}
	return comms
}

// join returns the end that world rank me has of the communicator of the given
// members. The first member that calls it makes the group, which has acknowledged the
// given losses, and is the control communicator of controls if that is not nil. j.mu is held.
func (j *job) join(key groupKey, world []int, me int, acknowledged []int, controls *group) (*Comm, error) {
	g := j.groups[key]
	if g == nil {
		g = &group{Members: match.NewMembers(world), job: j, key: key, ends: make([]Comm, len(world)), acknowledged: acknowledged}
		if controls != nil {
			g.isControl, controls.control = true, g
		}
		for i, w := range world {
			if controls != nil && (j.ranks[w].lost.Load() != nil || controls.ends[i].gone.Load()) ||
				j.world != nil && j.world.ends[w].gone.Load() {
				g.part(w)
			}
		}
		for _, l := range j.losses {
			if !g.acknowledges(l.rank) && g.end.CompareAndSwap(nil, l.end) {
				g.arrivals.stop()
			}
		}
		j.groups[key] = g
	} else if !slices.Equal(g.World, world) {
		return nil, backend.Faultf(backend.ErrComm, "communicator %d was made with other members by another rank", key.id)
	}
	i := g.RankOf(me)
	c := &g.ends[i]
	c.group, c.me, c.rank, c.Of = g, j.ranks[me], i, c
	return c, nil
}
