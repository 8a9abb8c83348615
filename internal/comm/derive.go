package comm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/view"
)

// To create a communicator, the ranks exchange their requests with a collective on the parent. This
// detects a rank that calls something else, because the element type names the call. With further
// collectives they agree on a context id (agree.IDs), and see that all have made the communicator, which itself needs no
// message. A rank that finds out too late that all have closes it again, and the others learn that.

// The calls that create communicators, and those on windows.
var (
	DupCall         = callType("Dup")
	SplitCall       = callType("Split")
	SplitSharedCall = callType("SplitShared")
	CartCall        = callType("CartCreate")
	SubCall         = callType("Sub")
	windowCall      = callType("NewWindow")
	claimCall       = callType("claim of a context id")
	fenceCall       = callType("Fence")
	closeCall       = callType("Close")
)

// callTypes contains the types that callType has made.
var callTypes []*backend.Datatype

// callType returns the element type that stands for one kind of call among the collectives.
func callType(name string) *backend.Datatype {
	d := newCallType(name, name)
	callTypes = append(callTypes, d)
	return d
}

// newCallType returns the element type that stands for the call with this name. key distinguishes it
// from others of this name.
func newCallType(name, key string) *backend.Datatype {
	d := &backend.Datatype{Kind: backend.Int64, Size: 8, Name: name, ID: datatype.ID("call " + key), Call: true}
	backend.NameType(d.ID, name)
	return d
}

// Request of a split: what one rank asks for.
type splitRequest struct {
	color, key int64
	facts      int64 // hash of the arguments that must be equal on all ranks
}

// Split makes one communicator per color. Ranks are ordered by key, and then by their rank. A rank
// whose color is Undefined gets nil. Facts is a hash of arguments that must be equal on all ranks; bad
// is an argument error of this rank.
func (c *Comm) Split(call *backend.Datatype, op string, color, key int, facts uint32, bad error) (*Comm, error) {
	if err := c.take(); err != nil {
		return nil, c.failed(op, err)
	}
	c = c.withDeadline()
	k := c.core
	defer k.life.leave()
	defer k.job.newAgreement().conclude()
	// 1. Exchange the requests.
	requests := make([]splitRequest, k.size)
	requests[k.rank] = splitRequest{int64(color), int64(key), int64(facts)}
	if err := c.allgather(call, view.Bytes(requests), bad); err != nil {
		return nil, c.failed(op, err)
	}
	for r, w := range requests {
		if w.facts != requests[0].facts {
			err := fault(backend.ErrMismatch, "rank 0 and rank %d called %s with different arguments", r, call.Name)
			k.bc.Break(err)
			return nil, c.failed(op, err)
		}
	}
	// 2. Agree on one context id for all of the new communicators.
	id, err := k.job.agree(k.seq, c.combineClaims)
	if err != nil {
		return nil, c.failed(op, err)
	}
	// 3. Create this rank's communicator.
	var d *Comm
	if color != Undefined {
		var members []int
		for r, w := range requests {
			if w.color == int64(color) {
				members = append(members, r)
			}
		}
		slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(requests[a].key, requests[b].key) })
		d, err = c.derive(op, members, id)
	}
	// 4. Wait until all ranks have theirs. A rank whose time was over in step 2 has none, and has broken c. Without this
	// step the others would wait for it in theirs, without end.
	one, failed := c.join(claimCall, err)
	if err = cmp.Or(err, failed); err == nil && one != nil {
		err = backend.AsFault(one)
	}
	if err != nil {
		_ = d.Close()
		return nil, c.failed(op, err)
	}
	return d, nil
}

// derive makes a communicator of some ranks, on this one.
func (c *Comm) derive(op string, members []int, id uint32) (*Comm, error) {
	bc, err := c.core.bc.Derive(c.bound, members, id)
	if err != nil {
		if unfinished(err) {
			c.core.bc.Break(err)
		}
		return nil, err
	}
	return c.child(op, bc, id)
}

// child returns the handle of a communicator derived from c. The world's Close closes it, or has begun before.
func (c *Comm) child(op string, bc backend.Comm, id uint32) (*Comm, error) {
	k := c.core
	k.mu.Lock()
	k.children++
	n := k.children
	k.mu.Unlock()
	d := k.job.newCore(bc, fmt.Sprintf("%s.%s%d", k.name, op, n), id)
	if d == nil {
		_ = bc.Close()
		return nil, errClosed
	}
	return d.plain.WithContext(c.ctx), nil
}

// allgather gathers an equally long record of every rank on all ranks, in place. The type names the
// call. If this rank has an argument error, allgather returns that, and the others get an error too. The
// caller has taken the communicator.
func (c *Comm) allgather(typ *backend.Datatype, all []byte, bad error) error {
	k := c.core
	k.call = backend.Call{
		Coll: backend.Allgather, InPlace: true, Root: -1, Type: typ, Count: len(all) / k.size / typ.Size, Recv: all, Err: bad,
	}
	return k.do(c.bound)
}

// claim is a number that a rank proposes for a context id, or has tried to claim.
type claim struct {
	number, group uint64 // for CreateGroup: see grouping, and a hash of the members
	id            uint32
	ok            uint32 // 0: the claim has failed
}

func (x claim) merge(y claim) claim {
	return claim{x.number, x.group, max(x.id, y.id), min(x.ok, y.ok)}
}

// agreement is an agreement on a context id that is under way, until the communicator is made.
type agreement struct {
	job  *job
	from uint32 // what IDs.Begin has returned
}

func (j *job) newAgreement() *agreement { return &agreement{j, j.ids.Begin()} }

func (a *agreement) conclude() { a.job.world.bc.Settled(a.job.ids.End(a.from)) }

// agree finds a context id that is free on all members. combine returns the largest id of all members,
// and ok if that of all is. The members pass the same salt.
func (j *job) agree(salt uint32, combine func(claim) (claim, error)) (uint32, error) {
	for attempt := uint32(0); ; attempt++ {
		all, err := combine(claim{id: j.ids.Propose(attempt, salt), ok: 1})
		if err != nil {
			return 0, err
		}
		mine := claim{id: all.id}
		free, err := j.ids.Claim(mine.id)
		if err != nil {
			return 0, err
		}
		if free {
			mine.ok = 1
		}
		if all, err = combine(mine); err != nil {
			return 0, err
		}
		if all.ok == 1 {
			return mine.id, nil
		}
	}
}

// combineClaims combines the claims of all ranks of the communicator, which the caller has taken.
func (c *Comm) combineClaims(mine claim) (claim, error) {
	all := make([]claim, c.core.size)
	all[c.core.rank] = mine
	err := c.allgather(claimCall, view.Bytes(all), nil)
	for _, x := range all {
		mine = mine.merge(x)
	}
	return mine, err
}
