package comm

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// In CreateGroup the members send claims to the leader, the one with the lowest rank, and it answers each of them. An
// attempt (job.agree) has two steps:
//
//	number  claim                                  answer
//	2k      the sender's proposal                  the largest proposal of all members
//	2k+1    whether the sender could claim the id  whether all could
//
// A call may run out of time at any step. Then claims and answers that nobody waits for are still under way, and the
// next call of these ranks may meet them. So a rank uses each number once, an answer has the number of its claim, and
// a member drops all other answers. The leader keeps each claim until it has answered it, also for its next call:
//
//	the leader expects  and takes from a member
//	a proposal          a proposal: to be answered when it has those of all members
//	                    2k+1: belongs to a call of the leader that has ended. The answer is to try again
//	2k+1, after 2k      2k+1: to be answered when it has those of all members
//	                    a proposal: the member has begun again. The leader keeps it, and all members try again
//
// A leader whose time is up tells the members whose claims it has, with the number of the claim, which rank it has not
// heard from (gaveUp). They go on waiting for the answer, and name that rank at their own deadlines.
//
// The leader compares the groups of its members with its own. A group with another lowest rank has another leader, and
// belongs to another call. A rank may make that call first and then this one, with the same tag. So the leader's wait for a
// member is in vain only if the member never makes this call, and no message shows that. The leader waits until its time is
// up.
//
// Invariant: a call returns only an id that this rank has claimed in the call, and that every other member has claimed
// in one of its own. If no member runs out of time once the leader may have answered a 2k+1, all members return the same.

// grouping is a rank's part in one CreateGroup.
type grouping struct {
	*Comm
	members []int
	leader  int
	tag     int
	group   uint64
	number  uint64         // of this rank's last claim
	taken   []uint64       // on the leader, the number of each member's last claim
	rest    *backend.Bound // see grace
}

// gaveUp is the ok of an answer to a claim that the leader keeps. The id is a rank that it has not heard from.
const gaveUp = 2

// CreateGroup makes a communicator of some ranks, one of which is the caller. Only they call it. bad is an argument
// error.
func (c *Comm) CreateGroup(members []int, tag int, bad error) (*Comm, error) {
	const op = "creategroup"
	if err := c.checkSend(backend.ProcNull, tag, bad); err != nil {
		return nil, c.Failed(op, Undefined, tag, err)
	}
	if most := backend.MostGroupTag(c.core.maxTag); uint(tag) > most {
		err := fault(backend.ErrTag, "tag %d is above %d, the largest of CreateGroup here", tag, most)
		return nil, c.Failed(op, Undefined, tag, c.core.refuse(err))
	}
	c = c.withDeadline()
	k := c.core
	defer k.job.newAgreement().conclude()
	h := fnv.New64a()
	for _, m := range members {
		fmt.Fprint(h, k.bc.WorldRank(m), " ")
	}
	g := &grouping{Comm: c, members: members, leader: slices.Min(members), tag: backend.GroupTag(tag), group: h.Sum64(), number: 1, taken: make([]uint64, len(members))}
	var id uint32
	err := k.traced(k.message(flight.CreateGroup, backend.Blocking, len(members), 0, tag, 0), func() (err error) {
		id, err = k.job.agree(uint32(g.group), g.combine)
		return err
	})
	if err != nil {
		return nil, c.Failed(op, Undefined, tag, err)
	}
	bc, err := k.bc.Derive(c.bound, members, id)
	if err != nil {
		return nil, c.Failed(op, Undefined, tag, err)
	}
	d, err := c.child("group", bc, id)
	return d, c.Failed(op, Undefined, tag, err)
}

// combine combines the members' claims.
func (g *grouping) combine(mine claim) (all claim, err error) {
	k := g.core
	if g.number++; g.number&1 == 0 {
		k.mu.Lock()
		k.attempts++
		g.number = 2 * k.attempts
		k.mu.Unlock()
	}
	mine.number, mine.group = g.number, g.group
	if k.rank == g.leader {
		all, err = g.lead(mine)
	} else {
		all, err = g.ask(mine)
	}
	if err == nil && all.group == 0 {
		err = fault(backend.ErrMismatch, "rank %d and rank %d called CreateGroup with different groups", g.leader, all.id)
	}
	return all, err
}

// ask sends a claim to the leader and returns the answer. When this rank's time is up, that of the leader may be too, and
// what it says when it gives up under way.
func (g *grouping) ask(mine claim) (all claim, err error) {
	if err = g.send(g.bound, g.leader, mine); err != nil {
		return all, err
	}
	limit, waits := g.bound, fmt.Sprintf("rank %d has not answered", g.leader)
	for err == nil && all.number != mine.number {
		switch all, err = g.receive(limit, g.leader); {
		case errors.Is(err, backend.ErrTimeout) && limit == g.bound:
			limit, err = g.grace(), nil
		case err == nil && all.number == mine.number && all.ok == gaveUp:
			waits = fmt.Sprintf("rank %d has not heard from rank %d", g.leader, all.id)
			all.number, err = 0, g.bound.Err(time.Time{})
		}
	}
	return all, g.late(err, waits)
}

// lead takes the claims of one step and answers them. If the groups differ, the answer to 2k+1 has no group, and has the
// rank of a member with another group as its id. The claim 2k may belong to a call that has ended, and 2k+1 does not.
func (g *grouping) lead(mine claim) (claim, error) {
	all, step, again, differs := mine, mine.number&1, false, g.leader
	for i, m := range g.members {
		if m == g.leader {
			continue
		}
		x, err := g.nextClaim(g.bound, m)
		for ; err == nil && step < x.number&1; x, err = g.nextClaim(g.bound, m) {
			if err := g.answer(m, x.number, claim{group: g.group}); err != nil {
				return all, err
			}
		}
		if err != nil {
			return all, g.giveUp(err, m)
		}
		again = again || step == 1 && (x.number != g.taken[i]+1 || x.id != mine.id)
		if g.taken[i] = x.number; x.group != g.group {
			differs = m
		}
		all = all.merge(x)
	}
	switch {
	case again:
		all = claim{group: g.group}
	case step == 1 && differs != g.leader:
		all.group, all.id = 0, uint32(differs)
	}
	for i, m := range g.members {
		if m != g.leader && g.taken[i]&1 == step {
			if err := g.answer(m, g.taken[i], all); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// giveUp tells the members which rank the leader has not heard from, if the leader's time is up. It was waiting for m.
func (g *grouping) giveUp(why error, m int) error {
	if !unfinished(why) {
		return why
	}
	missing := []int{m}
	for _, r := range g.members {
		if r == g.leader || r == m {
			continue
		}
		if _, came, _ := g.core.bc.Probe(nil, r, g.tag, false); came {
			_, _ = g.nextClaim(g.grace(), r)
		}
		if g.kept(r).number == 0 {
			missing = append(missing, r)
		}
	}
	slices.Sort(missing)
	for _, r := range g.members {
		if x := g.kept(r); x.number != 0 {
			_ = g.send(g.grace(), r, claim{number: x.number, id: uint32(missing[0]), ok: gaveUp})
		}
	}
	return g.late(why, "not heard from "+backend.RankList(missing))
}

// grace limits what this rank still does when its time is up.
func (g *grouping) grace() *backend.Bound {
	if g.rest == nil {
		g.rest = &backend.Bound{Timeout: backend.Grace, Since: time.Now()}
	}
	return g.rest
}

// late adds to an error that says that the time is up what this rank waited for.
func (g *grouping) late(err error, waits string) error {
	if !unfinished(err) {
		return err
	}
	return backend.While(cmp.Or(g.bound.Err(time.Time{}), err), waits+"; all members call it with the same group and tag")
}

// kept returns a member's claim that the leader has received and not answered. Its number is 0 if there is none.
func (g *grouping) kept(m int) claim {
	k := g.core
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.claims[[2]int{m, g.tag}]
}

// nextClaim returns a member's claim that the leader has not answered, and waits for one if there is none.
func (g *grouping) nextClaim(b *backend.Bound, m int) (x claim, err error) {
	k, from := g.core, [2]int{m, g.tag}
	if x = g.kept(m); x.number != 0 {
		return x, nil
	}
	if x, err = g.receive(b, m); err == nil {
		k.mu.Lock()
		if k.claims == nil {
			k.claims = make(map[[2]int]claim)
		}
		k.claims[from] = x
		k.mu.Unlock()
	}
	return x, err
}

// answer answers the claim of a member. If that fails, the next call answers it, perhaps once more.
func (g *grouping) answer(m int, number uint64, x claim) error {
	x.number = number
	err := g.send(g.bound, m, x)
	if err == nil {
		g.core.mu.Lock()
		delete(g.core.claims, [2]int{m, g.tag})
		g.core.mu.Unlock()
	}
	return err
}

func (g *grouping) send(b *backend.Bound, to int, x claim) error {
	return g.core.bc.Send(b, view.Bytes([]claim{x}), to, g.tag, backend.Standard)
}

func (g *grouping) receive(b *backend.Bound, from int) (claim, error) {
	var buf [1]claim
	_, err := g.core.bc.Recv(b, view.Bytes(buf[:]), from, g.tag)
	return buf[0], err
}
