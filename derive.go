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
// Errors: [ErrMismatch] on every rank if a rank calls something else; [ErrAlloc] if there are too
// many communicators.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and c is broken. The context of c
// also applies to the new communicator.
func (c *Comm) Dup() (*Comm, error) {
	d, err := c.base().Split(comm.DupCall, "dup", 0, 0, 0, nil)
	return (*Comm)(d), err
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
	d, err := c.base().Split(comm.SplitCall, "split", color, key, 0, err)
	return (*Comm)(d), err
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
	if bc := c.base().Backend(); bc != nil {
		color = bc.NodeOf(c.Rank())
	}
	d, err := c.base().Split(comm.SplitSharedCall, "splitshared", color, 0, 0, nil)
	return (*Comm)(d), err
}

// CreateGroup returns a communicator of the ranks of g, in their order in g. Ranks that call it
// concurrently for different groups use different tags.
//
// Collective over g: its members, all of which are ranks of c, call it with the same group and tag.
//
// Errors: [ErrRank] if the caller is not in g or a member of g is not in c; [ErrTag]; [ErrMismatch]
// if the members' groups differ; [ErrAlloc] if there are too many communicators.
//
// Deadline: [ErrTimeout]. The communicator c stays usable, except on mpi if a send was abandoned, and the
// members can call CreateGroup again. A member that is out of time at the end may be the only one that gets
// ErrTimeout. Then the others close the new communicator before they call it again.
// The context of c also applies to the new communicator.
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
