package local

import (
	"cmp"
	"maps"
	"runtime"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/membership"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

// job is the ranks of one New and the communicators among them.
type job struct {
	ranks []*rank
	spins int // how often a waiter checks before it parks; 0 if ranks share processors

	mu     word.Mutex // guards the fields below
	groups map[groupKey]*group
	peers  []peer // by world rank, and after them one that is lost when the job has ended
}

// peer is what has become of a rank. There are no links.
type peer struct {
	membership.Peer
	end *ending // of the communicators that its loss ends
}

// fate returns what has become of a rank, and if it is lost, why.
func (j *job) fate(world int) (membership.Standing, *ending) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.peers[world].Standing, j.peers[world].end
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

// worldKey is the key of the communicator that New makes.
var worldKey groupKey

// control returns the key of the control communicator.
func (k groupKey) control() groupKey { return groupKey{k.id | agree.ControlID, k.first} }

// rank is what one rank has, whatever the communicator.
type rank struct {
	cell cell // at the beginning of the memory, which begins a cache line

	job  *job
	id   int   // world rank
	ring *ring // nil if ranks share processors

	crew wait.Crew // its goroutines that wait; all follow, because there are no links to sleep on
	_    [56]byte  // senders look at crew when they have used mu

	mu      word.Mutex  // guards the fields below; see lock
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
//	gone of a slot Close of the rank; Close of the world and the loss of the rank, in all groups that it is a
//	               member of; in a control communicator also Close of the other one
//
// Package membership has the rules for what becomes of a rank.
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

	acknowledged []int // world ranks whose losses do not end it

	memory word.Pointer[window.Memory] // the last one that Share has made
}

// New makes a job of n ranks and returns the first communicator's end of each.
// Every rank must Close its own.
func New(n int) []backend.Comm {
	j := &job{groups: make(map[groupKey]*group), peers: make([]peer, n+1)}
	if procs := runtime.GOMAXPROCS(0); procs > 1 && n <= procs {
		j.spins = spins
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
		r := &rank{job: j, id: i}
		r.crew.Shut()
		if j.spins > 0 {
			r.ring = new(ring)
		}
		j.ranks = append(j.ranks, r)
	}
	comms := make([]backend.Comm, n)
	for i := range comms {
		comms[i], _ = j.join(worldKey, all, i, nil, nil) // nobody else knows the job yet
	}
	return comms
}

// join returns the end that world rank me has of the communicator of the given
// members. The first member that calls it makes the group, which has acknowledged the
// given losses. from is the one that it is derived from. j.mu is held.
func (j *job) join(key groupKey, world []int, me int, acknowledged []int, from *group) (backend.Comm, error) {
	g := j.groups[key]
	if g == nil {
		g = &group{Members: match.NewMembers(world), job: j, key: key, ends: make([]Comm, len(world)), acknowledged: acknowledged}
		g.arrivals.each, g.arrivals.lines = j.spins > 0, make([]line, lineDeep*len(world))
		for i, w := range world {
			if j.peers[w].Over() || g.isControl() && from.ends[i].gone.Load() {
				g.part(w)
			}
		}
		for r := range j.peers {
			if e := j.peers[r].end; e != nil && !g.acknowledges(r) {
				g.end.CompareAndSwap(nil, e)
				g.arrivals.stop(never)
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
