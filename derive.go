package cohort

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// To create a communicator, the ranks exchange their requests with a collective on the parent. This
// detects a rank that calls something else, because the element type names the call. With further
// collectives they agree on a context id (see idSpace). The communicator itself needs no message.

// makers contains the types that maker has made.
var makers []*backend.Datatype

// maker returns the element type that stands for one kind of call that creates communicators.
func maker(name string) *backend.Datatype {
	d := &backend.Datatype{Kind: backend.Opaque, Size: 8, Name: name, ID: layoutID("call " + name), Call: true}
	backend.NameType(d.ID, name)
	makers = append(makers, d)
	return d
}

var (
	dupCall         = maker("Dup")
	splitCall       = maker("Split")
	splitSharedCall = maker("SplitShared")
	cartCall        = maker("CartCreate")
	claimCall       = maker("claim of a context id")
)

// Dup returns a new communicator with the same ranks. Messages on the two never match.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrMismatch] on every rank if a rank calls something else; [ErrAlloc] if there are too
// many communicators.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and c is broken. The context of c
// also applies to the new communicator.
func (c *Comm) Dup() (*Comm, error) {
	d, err := c.split(dupCall, "dup", 0, 0, nil)
	return d, err
}

// Split divides c into one communicator per color. Ranks with the same color are ordered by key
// and, if their keys are equal, by their rank in c. A rank whose color is [Undefined] gets nil.
//
// Collective: all ranks of c call it.
//
// Errors: as for [Comm.Dup]; [ErrRank] for a color below 0 other than Undefined.
//
// Deadline: as for [Comm.Dup].
func (c *Comm) Split(color, key int) (*Comm, error) {
	var err error
	if color < 0 && color != Undefined {
		err = fault(ErrRank, fmt.Sprintf("color is %d; want 0 or more, or Undefined", color))
	}
	return c.split(splitCall, "split", color, key, err)
}

// SplitShared divides c into one communicator per node, with the node's ranks in their order in c.
//
// Collective: all ranks of c call it.
//
// Errors: as for [Comm.Dup].
//
// Deadline: as for [Comm.Dup].
func (c *Comm) SplitShared() (*Comm, error) {
	color := 0
	if c.open() == nil {
		color = c.core.bc.NodeOf(c.core.rank)
	}
	return c.split(splitSharedCall, "splitshared", color, 0, nil)
}

// splitRequest is the request of one rank.
type splitRequest struct {
	color, key int64
	facts      int64 // hash of the arguments that must be equal on all ranks
}

// split performs Split and similar calls; bad is an argument error of this rank.
func (c *Comm) split(call *backend.Datatype, op string, color, key int, bad error) (*Comm, error) {
	return c.splitFacts(call, op, splitRequest{color: int64(color), key: int64(key)}, bad)
}

func (c *Comm) splitFacts(call *backend.Datatype, op string, mine splitRequest, bad error) (*Comm, error) {
	fail := func(err error) (*Comm, error) { return nil, c.failed(op, Undefined, Undefined, err) }
	if err := c.take(); err != nil {
		return fail(err)
	}
	k := c.core
	defer k.busy.Store(false)
	k.job.ids.begin()
	defer k.job.ids.end()
	// 1. Exchange the requests.
	requests := make([]splitRequest, k.size)
	requests[k.rank] = mine
	if err := c.share(call, requests, bad); err != nil {
		return fail(err)
	}
	for r, w := range requests {
		if w.facts != requests[0].facts {
			err := fault(ErrMismatch, fmt.Sprintf("rank 0 and rank %d called %s with different arguments", r, call.Name))
			k.bc.Break(err)
			return fail(err)
		}
	}
	// 2. Agree on one context id for all of the new communicators.
	id, err := c.agree()
	if err != nil {
		return fail(err)
	}
	if mine.color == Undefined {
		return nil, nil
	}
	// 3. Create this rank's communicator.
	var members []int
	for r, w := range requests {
		if w.color == mine.color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(requests[a].key, requests[b].key) })
	return c.derive(op, members, id)
}

// derive creates the communicator.
func (c *Comm) derive(op string, members []int, id uint32) (*Comm, error) {
	k := c.core
	bc, err := k.bc.Derive(members, id)
	if err != nil {
		return nil, c.failed(op, Undefined, Undefined, err)
	}
	return c.child(op, bc, id), nil
}

// child returns the handle of a communicator derived from c.
func (c *Comm) child(op string, bc backend.Comm, id uint32) *Comm {
	k := c.core
	k.mu.Lock()
	k.children++
	n := k.children
	k.mu.Unlock()
	d := k.job.newCore(bc, fmt.Sprintf("%s.%s%d", k.name, op, n), id)
	if c.ctx == k.job.ctx || c.bound == nil {
		return d.home
	}
	return d.home.WithContext(c.ctx)
}

// share gathers one element per rank on all ranks, in place. The caller has reserved the
// communicator.
func (c *Comm) share(typ *backend.Datatype, all []splitRequest, bad error) error {
	k := c.core
	call := &k.call
	*call = backend.Call{
		Coll: backend.Allgather, InPlace: true, Root: -1, Type: typ, Count: view.Size[splitRequest]() / typ.Size,
		Recv: view.Bytes(all), Err: bad,
	}
	err := k.collective(c.bound, call)
	*call = backend.Call{Root: -1}
	return err
}

// agree finds a context id that is free on all ranks of c.
func (c *Comm) agree() (uint32, error) {
	k := c.core
	ids := &k.job.ids
	all := make([]splitRequest, k.size)
	for attempt := uint32(0); ; attempt++ {
		all[k.rank] = splitRequest{color: int64(ids.propose(attempt, k.seq))}
		if err := c.share(claimCall, all, nil); err != nil {
			return 0, err
		}
		id := uint32(0)
		for _, w := range all {
			id = max(id, uint32(w.color))
		}
		if err := spent(id); err != nil {
			return 0, err
		}
		all[k.rank] = splitRequest{}
		if ids.claim(id) {
			all[k.rank].color = 1
		}
		if err := c.share(claimCall, all, nil); err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(all, func(w splitRequest) bool { return w.color == 0 }) {
			return id, nil
		}
	}
}

// groupTag returns the tag of CreateGroup's messages. It is below those of all collectives, and
// differs for tags that differ modulo 2^28.
func groupTag(tag int) int { return -3*(1<<29) - 8 - tag%(1<<28) }

// CreateGroup returns a communicator of the ranks of g, in their order in g. Ranks that call it
// concurrently for different groups use different tags.
//
// Collective over g: its members, all of which are ranks of c, call it with the same group and tag.
//
// Errors: [ErrRank] if the caller is not in g or a member of g is not in c; [ErrTag]; [ErrMismatch]
// if the members' groups differ; [ErrAlloc] if there are too many communicators.
//
// Deadline: [ErrTimeout]. The communicator c stays usable, except on mpi if a send was abandoned.
// The context of c also applies to the new communicator.
func (c *Comm) CreateGroup(g *Group, tag int) (*Comm, error) {
	fail := func(err error) (*Comm, error) { return nil, c.failed("creategroup", Undefined, tag, err) }
	if err := c.open(); err != nil {
		return fail(err)
	}
	if uint(tag) > c.core.maxTag {
		return fail(c.core.badArgument(c.core.badTag(tag)))
	}
	members, err := c.membersOf(g)
	if err != nil {
		return fail(c.core.badArgument(err))
	}
	c.core.job.ids.begin()
	defer c.core.job.ids.end()
	k := c.core
	t := k.recorder.Begin(k.message(flight.CreateGroup, backend.Blocking), uint64(len(members)), flight.Pair(0, uint32(tag)), flight.Pair(0, 0))
	id, err := c.agreeGroup(g, members, groupTag(tag))
	k.ended(t, err)
	if err != nil {
		return fail(err)
	}
	return c.derive("group", members, id)
}

// membersOf returns the ranks in c of g's members.
func (c *Comm) membersOf(g *Group) ([]int, error) {
	if g == nil || g.Rank() == Undefined {
		return nil, fault(ErrRank, "the calling rank is not in the group")
	}
	members, err := g.TranslateRanks(ranksTo(g.Size()), c.Group())
	if err != nil {
		return nil, err
	}
	if i := slices.Index(members, Undefined); i >= 0 {
		return nil, fault(ErrRank, fmt.Sprintf("rank %d of the group is not in %s", i, c.core.name))
	}
	return members, nil
}

func ranksTo(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

// proposal is the message of the members of a group: a hash of the group, a proposed id, and
// whether the id that was agreed on is free.
type proposal struct {
	group uint64
	id    uint32
	ok    uint32
}

// agreeGroup finds a context id for a group. Its members send their proposals to the first member,
// which replies with the largest. In a second round they find out whether that id is free for all.
func (c *Comm) agreeGroup(g *Group, members []int, tag int) (uint32, error) {
	ids := &c.core.job.ids
	h := fnv.New64a()
	fmt.Fprint(h, g.world)
	mine := proposal{group: h.Sum64()}
	for attempt := uint32(0); ; attempt++ {
		mine.id, mine.ok = ids.propose(attempt, uint32(mine.group)), 1
		all, err := c.combine(g.Rank(), members, tag, mine)
		if err != nil {
			return 0, err
		}
		if err := spent(all.id); err != nil {
			return 0, err
		}
		mine.id = all.id
		if !ids.claim(all.id) {
			mine.ok = 0
		}
		if all, err = c.combine(g.Rank(), members, tag, mine); err != nil {
			return 0, err
		}
		if all.ok == 1 {
			return all.id, nil
		}
	}
}

// combine combines the members' proposals at the first member, which sends the result to all: the
// largest id, and ok if all are. If the groups differ, the first member replies with the hash of
// another group, and the members return ErrMismatch.
func (c *Comm) combine(rank int, members []int, tag int, mine proposal) (proposal, error) {
	bc := c.core.bc
	buf := make([]proposal, 1)
	mismatch := func(peer int) error {
		return fault(ErrMismatch, fmt.Sprintf("rank %d and rank %d called CreateGroup with different groups", peer, c.core.rank))
	}
	if rank != 0 {
		buf[0] = mine
		if err := bc.Send(c.bound, view.Bytes(buf), members[0], tag, backend.Standard); err != nil {
			return proposal{}, err
		}
		if _, err := bc.Recv(c.bound, view.Bytes(buf), members[0], tag); err != nil {
			return proposal{}, err
		}
		if buf[0].group != mine.group {
			return proposal{}, mismatch(members[0])
		}
		return buf[0], nil
	}
	all := mine
	var bad error
	for _, m := range members[1:] {
		if _, err := bc.Recv(c.bound, view.Bytes(buf), m, tag); err != nil {
			return proposal{}, err
		}
		if buf[0].group != mine.group {
			bad = mismatch(m)
			all.group = ^mine.group
		}
		all.id = max(all.id, buf[0].id)
		all.ok = min(all.ok, buf[0].ok)
	}
	buf[0] = all
	for _, m := range members[1:] {
		if err := bc.Send(c.bound, view.Bytes(buf), m, tag, backend.Standard); err != nil {
			return proposal{}, err
		}
	}
	return all, bad
}
