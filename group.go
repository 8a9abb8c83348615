package cohort

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/internal/comm"
)

// Dup returns a new communicator with the same ranks. Messages on the two never match.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrMismatch] on every rank if a rank calls something else; [ErrAlloc] on every rank if one
// has too many communicators.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and c is broken. If another rank
// gets the new communicator nevertheless, this rank counts there as one that has closed it. The
// context of c also applies to the new communicator.
func (c *Comm) Dup() (*Comm, error) {
	d, err := c.base().Split(comm.DupCall, "dup", 0, 0, 0, nil)
	return (*Comm)(d), err
}

// Split divides c into one communicator per color. Ranks with the same color are ordered by key
// and, if their keys are equal, by their rank in c. A rank whose color is [Undefined] gets nil.
//
// Collective: all ranks of c call it.
//
// Errors, deadline: as for [Comm.Dup]; [ErrRank] for a color below 0 other than Undefined.
func (c *Comm) Split(color, key int) (*Comm, error) {
	var err error
	if color < 0 && color != Undefined {
		err = fault(ErrRank, fmt.Sprintf("color is %d; want 0 or more, or Undefined", color))
	}
	d, err := c.base().Split(comm.SplitCall, "split", color, key, 0, err)
	return (*Comm)(d), err
}

// SplitShared divides c into one communicator per node, with the node's ranks in their order in c.
//
// Collective: all ranks of c call it.
//
// Errors, deadline: as for [Comm.Dup].
func (c *Comm) SplitShared() (*Comm, error) {
	color := 0
	if bc := c.base().Backend(); bc != nil {
		color = bc.NodeOf(c.Rank())
	}
	d, err := c.base().Split(comm.SplitSharedCall, "splitshared", color, 0, 0, nil)
	return (*Comm)(d), err
}

// CreateGroup returns a communicator of the ranks of g, in their order in g. A rank that calls it
// concurrently for different groups uses different tags.
//
// Collective over g: its members, all of which are ranks of c, call it with the same group and tag.
//
// Errors: [ErrRank] if the caller is not in g or a member of g is not in c; [ErrTag], also for a
// tag above a sixteenth of Caps().MaxTag; [ErrMismatch] if the members' groups differ but have the
// same lowest rank; [ErrAlloc] on a member that has too many communicators. The operations of the
// others on the new communicator then end with [ErrPeerLost].
//
// The lowest rank of a group hears from all members of its group, and compares their groups with
// its own. A group with another lowest rank belongs to another call, which may come first. So a
// rank waits, at most until its deadline, while a member is in a call with another lowest rank. It
// also waits if the lowest rank leaves it out: if ranks 0 and 1 pass {0, 1} and rank 2 passes
// {0, 1, 2}, ranks 0 and 1 get their communicator, and rank 2 waits until they pass {0, 1, 2} too.
//
// Deadline: [ErrTimeout] names members that have not called CreateGroup with this group and tag. A
// rank that has not been told of any names the lowest rank, which has not answered. c stays usable,
// except on mpi if a send was abandoned, and the members can call CreateGroup again. It may be that
// only one member gets ErrTimeout, and the others get the new communicator. They then close it
// before they call CreateGroup again. On mpi they wait for that member instead, at most until their
// own deadlines. The context of c also applies to the new communicator.
func (c *Comm) CreateGroup(g *Group, tag int) (*Comm, error) {
	members, err := c.membersOf(g)
	d, err := c.base().CreateGroup(members, tag, err)
	return (*Comm)(d), err
}

// membersOf returns the ranks in c of g's members, one of which is the caller.
func (c *Comm) membersOf(g *Group) (members []int, err error) {
	if g == nil || g.Rank() == Undefined {
		return nil, fault(ErrRank, "the calling rank is not in the group")
	}
	of := c.Group()
	members = make([]int, g.Size())
	for i, w := range g.world {
		members[i] = of.rankOf(w)
	}
	if i := slices.Index(members, Undefined); i >= 0 {
		return nil, fault(ErrRank, fmt.Sprintf("rank %d of the group is not in %s", i, c.Name()))
	}
	return members, nil
}

// Group is an ordered set of ranks of the job. [Comm.Group] returns the ranks of a communicator; the
// other groups derive from that. A group never changes and means the same on every rank. A nil group is
// empty. No method is collective.
type Group struct {
	world []int // world ranks, in group order
	me    int   // the calling rank's world rank; Undefined in a group that derives from no communicator
}

// Group returns the group of c's ranks.
func (c *Comm) Group() *Group {
	bc := c.base().Backend()
	if bc == nil {
		return &Group{me: Undefined}
	}
	g := &Group{world: make([]int, c.Size()), me: bc.WorldRank(c.Rank())}
	for i := range g.world {
		g.world[i] = bc.WorldRank(i)
	}
	return g
}

// ranks returns the world ranks of the members.
func (g *Group) ranks() []int {
	if g == nil {
		return nil
	}
	return g.world
}

// with returns a group of other ranks.
func (g *Group) with(world []int) *Group {
	if g == nil {
		return &Group{world, Undefined}
	}
	return &Group{world, g.me}
}

// Size returns the number of members of g.
func (g *Group) Size() int { return len(g.ranks()) }

// Rank returns the calling rank's number in g. It is [Undefined] if the rank is not a member.
func (g *Group) Rank() int { return g.rankOf(g.with(nil).me) }

func (g *Group) rankOf(world int) int {
	if i := slices.Index(g.ranks(), world); i >= 0 {
		return i
	}
	return Undefined
}

// Incl returns the group of the given ranks of g, in the order given.
//
// Not collective; errors: [ErrRank] for a rank outside g or named twice.
func (g *Group) Incl(ranks ...int) (*Group, error) { return g.incl("group incl", ranks) }

// Excl returns g without the given ranks.
//
// Not collective; errors: [ErrRank] for a rank outside g or named twice.
func (g *Group) Excl(ranks ...int) (*Group, error) {
	without, err := g.incl("group excl", ranks)
	if err != nil {
		return nil, err
	}
	return g.Difference(without), nil
}

// incl returns the group of distinct ranks of g.
func (g *Group) incl(op string, ranks []int) (*Group, error) {
	n := g.with(nil)
	for _, r := range ranks {
		switch {
		case r < 0 || r >= len(g.ranks()):
			return nil, g.failed(op, fmt.Sprintf("rank %d of a group of %d", r, len(g.ranks())))
		case slices.Contains(n.world, g.ranks()[r]):
			return nil, g.failed(op, fmt.Sprintf("rank %d is named twice", r))
		}
		n.world = append(n.world, g.ranks()[r])
	}
	return n, nil
}

func (g *Group) failed(op, text string) error {
	return &OpError{Op: op, Rank: g.Rank(), Peer: Undefined, Tag: Undefined, Err: fault(ErrRank, text)}
}

// Union returns the members of g followed by those of h that are not in g.
func (g *Group) Union(h *Group) *Group {
	n := g.with(slices.Clone(g.ranks()))
	if n.me == Undefined {
		n.me = h.with(nil).me
	}
	for _, w := range h.ranks() {
		if !slices.Contains(g.ranks(), w) {
			n.world = append(n.world, w)
		}
	}
	return n
}

// Intersection returns the members of g that are in h, in g's order.
func (g *Group) Intersection(h *Group) *Group {
	return g.filter(func(w int) bool { return slices.Contains(h.ranks(), w) })
}

// Difference returns the members of g that are not in h, in g's order.
func (g *Group) Difference(h *Group) *Group {
	return g.filter(func(w int) bool { return !slices.Contains(h.ranks(), w) })
}

func (g *Group) filter(keep func(world int) bool) *Group {
	n := g.with(nil)
	for _, w := range g.ranks() {
		if keep(w) {
			n.world = append(n.world, w)
		}
	}
	return n
}

// TranslateRanks returns the numbers in h of the given ranks of g: [Undefined] for ranks that are not
// in h, and ProcNull for ProcNull.
//
// Not collective; errors: [ErrRank] for a rank outside g.
func (g *Group) TranslateRanks(ranks []int, h *Group) ([]int, error) {
	out := make([]int, len(ranks))
	for i, r := range ranks {
		switch {
		case r == ProcNull:
			out[i] = ProcNull
		case r < 0 || r >= len(g.ranks()):
			return nil, g.failed("group translateranks", fmt.Sprintf("rank %d of a group of %d", r, len(g.ranks())))
		default:
			out[i] = h.rankOf(g.ranks()[r])
		}
	}
	return out, nil
}

// Equal reports whether g and h have the same members in the same order.
func (g *Group) Equal(h *Group) bool { return slices.Equal(g.ranks(), h.ranks()) }

// Similar reports whether g and h have the same members in any order.
func (g *Group) Similar(h *Group) bool {
	a, b := slices.Clone(g.ranks()), slices.Clone(h.ranks())
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
