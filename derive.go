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

// Making communicators. The members exchange what they asked for with a
// collective of the parent's own, so that a rank that calls something else is
// found as in any collective; the element type names the call. Then they agree
// on a context id (see idSpace), which takes a second one, and make the
// communicator without further messages.

// makers are the types that maker has made.
var makers []*backend.Datatype

// maker is the element type of one kind of call that makes communicators.
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

// Dup makes a communicator of the same ranks with a context of its own: messages
// of the two never match.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrMismatch] on every rank if one calls something else.
func (c *Comm) Dup() (*Comm, error) {
	d, err := c.split(dupCall, "dup", 0, 0, nil)
	return d, err
}

// Split makes one communicator for each color, of the ranks that give this
// color, ordered by key and, where the keys are equal, by their rank in c. A rank
// whose color is [Undefined] gets nil.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrRank] for a color below 0 other than Undefined; [ErrMismatch] on
// every rank if one calls something else.
func (c *Comm) Split(color, key int) (*Comm, error) {
	var err error
	if color < 0 && color != Undefined {
		err = fault(ErrRank, fmt.Sprintf("color %d is neither Undefined nor 0 and above", color))
	}
	return c.split(splitCall, "split", color, key, err)
}

// SplitShared makes one communicator for each node, of the ranks that run on it,
// in their order in c.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrMismatch] on every rank if one calls something else.
func (c *Comm) SplitShared() (*Comm, error) {
	color := 0
	if c.open() == nil {
		color = c.core.bc.NodeOf(c.core.rank)
	}
	return c.split(splitSharedCall, "splitshared", color, 0, nil)
}

// splitRequest is what a rank asks for.
type splitRequest struct {
	color, key int64
	facts      int64 // what has to be the same on all ranks, hashed
}

// split is Split and its like; bad is an argument error of this rank.
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
	// 1. Who wants what.
	requests := make([]splitRequest, k.size)
	requests[k.rank] = mine
	if err := c.share(call, requests, bad); err != nil {
		return fail(err)
	}
	for r, w := range requests {
		if w.facts != requests[0].facts {
			err := fault(ErrMismatch, fmt.Sprintf("rank 0 and rank %d gave %s different arguments", r, call.Name))
			k.bc.Break(err)
			return fail(err)
		}
	}
	// 2. A context id for all of the new communicators together.
	id, err := c.agree()
	if err != nil {
		return fail(err)
	}
	if mine.color == Undefined {
		return nil, nil
	}
	// 3. My communicator.
	var members []int
	for r, w := range requests {
		if w.color == mine.color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(requests[a].key, requests[b].key) })
	return c.derive(op, members, id)
}

// derive makes the communicator.
func (c *Comm) derive(op string, members []int, id uint32) (*Comm, error) {
	k := c.core
	bc, err := k.bc.Derive(members, id)
	if err != nil {
		return nil, c.failed(op, Undefined, Undefined, err)
	}
	return c.child(op, bc, id), nil
}

// child returns the handle of a communicator made from c.
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

// share makes an Allgather in place of one element per rank. The caller has
// taken the communicator.
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

// Messages of CreateGroup have tags of their own, below those of all
// collectives, one for each tag modulo 2^28.
func groupTag(tag int) int { return -3*(1<<29) - 8 - tag%(1<<28) }

// CreateGroup makes a communicator of the ranks of g, in g's order. Members of g
// that call it at the same time for different groups use different tags.
//
// Collective over g only: its members call it, with the same group and tag; all
// are ranks of c.
//
// Errors: [ErrRank] if the caller is not in g or a member of g is not in c,
// [ErrTag]; [ErrMismatch] if the members' groups differ.
//
// Deadline: [ErrTimeout]; a member that did not come is named.
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

// proposal is what the members of a group tell each other: which group they mean,
// and a proposal for the id or whether the one agreed on was free.
type proposal struct {
	group uint64
	id    uint32
	ok    uint32
}

// agreeGroup finds a context id for a group: its members send their proposals to
// the first one, which answers with the largest, and then the same for whether
// it was free.
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

// combine combines the members' proposals at the first member and hands the result to
// all: the largest id, ok if all are. Members that mean different groups get
// ErrMismatch; the first one tells them by a proposal of another group.
func (c *Comm) combine(rank int, members []int, tag int, mine proposal) (proposal, error) {
	bc := c.core.bc
	buf := make([]proposal, 1)
	mismatch := func(peer int) error {
		return fault(ErrMismatch, fmt.Sprintf("rank %d called CreateGroup with another group than rank %d", peer, c.core.rank))
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
