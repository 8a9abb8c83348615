package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Going on after failures: Agree, Shrink, Revoke.

// without returns the ranks that are not lost.
func without(r *Rank, lost func(rank, size int) bool) (ranks []int) {
	for i := range r.Size {
		if !lost(i, r.Size) {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// agreed checks an agreement on c in which the given ranks take part. Each passes a flag
// that lacks its own bit.
func agreed(r *Rank, c *cohort.Comm, ranks []int) {
	r.agreedOn(must(c.Agree(^(1 << (r.Rank % 31)))), c, ranks)
}

// agreedOn checks the result of one.
func (r *Rank) agreedOn(got int, c *cohort.Comm, ranks []int) {
	want := -1
	for _, i := range ranks {
		want &^= 1 << (i % 31)
	}
	equal(r, got, want, "agreed on %s", c.Name())
}

// works checks that c has the given ranks of the job, in this order, and that every kind
// of operation works on it.
func works(r *Rank, c *cohort.Comm, want []int) {
	if got := members(r, c); !slices.Equal(got, want) || c.Rank() != slices.Index(want, r.Rank) {
		r.Errorf("%s: rank %d of %v, want %d of %v", c.Name(), c.Rank(), got, slices.Index(want, r.Rank), want)
		return
	}
	p := &player{r: r, ctx: context.Background(), c: c, rng: seeded("works", c.Size()), mem: new(sync.Mutex)}
	for i, op := range p.operations() {
		p.step = i
		op()
	}
	agreed(r, c, want)
	r.OK(c.Barrier())
}

// agreeWhole agrees without a failure, many times on one communicator, and on two in turn.
func agreeWhole(r *Rank) {
	all := without(r, nobody)
	for range 10 {
		agreed(r, r.Comm, all)
	}
	half := must(r.Comm.Split(r.Rank%2, 0))
	for range 3 {
		agreed(r, half, members(r, half))
		agreed(r, r.Comm, all)
	}
	equalSlices(r, half.Lost(), nil, "lost without a failure")
	r.OK(half.Close())
	if r.Size == 1 {
		return
	}
	var err error
	if r.Rank == r.Size-1 {
		_, err = r.Comm.Shrink()
	} else {
		_, err = r.Comm.Agree(1)
	}
	r.Is(err, cohort.ErrMismatch, "Agree and Shrink at once")
	agreed(r, r.Comm, all) // nothing is left of them
}

// revoke has one rank revoke the communicator while the others wait in different
// operations.
func revoke(r *Rank) {
	var err error
	switch {
	case r.Rank == 0:
		r.OK(r.Comm.Revoke())
		err = r.Comm.Barrier()
	case r.Rank%2 == 0:
		err = r.Comm.Barrier()
	default:
		_, err = cohort.Recv(r.Comm, make([]int, 1), cohort.AnySource, 1)
	}
	r.Is(err, cohort.ErrBroken, "an operation during Revoke").names("rank 0")
	r.Is(cohort.Send(r.Comm, []int{1}, 0, 1), cohort.ErrBroken, "Send after Revoke")
	all := without(r, nobody)
	agreed(r, r.Comm, all)
	d := must(r.Comm.Shrink())
	works(r, d, all)
	r.OK(d.Close())
}

// agreeDeadline has the deadline of all ranks but one end their Agree, and their context end their Shrink. Both go on, and
// the next call returns the result; the first flag counts. Another call is an error meanwhile.
func agreeDeadline(r *Rank) {
	last, flag, all := r.Size-1, ^(1 << (r.Rank % 31)), without(r, nobody)
	first := func(call func()) { // of all ranks but the last, which waits for their calls to end
		if r.Rank < last {
			call()
			r.OK(cohort.Send(r.World, []int{1}, last, 8))
			return
		}
		for i := range last {
			must(cohort.Recv(r.World, make([]int, 1), i, 8))
		}
	}
	first(func() {
		c, _, cancel := deadline(r.Comm)
		r.Is(errorOf(c.Agree(flag)), cohort.ErrTimeout, "Agree without rank %d", last).names(fmt.Sprint(last))
		cancel()
		r.Is(errorOf(r.Comm.Shrink()), cohort.ErrRequest, "Shrink after an Agree whose time ran out").names("call Agree again")
		flag = 0
	})
	r.agreedOn(must(r.Comm.Agree(flag)), r.Comm, all)
	first(func() {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("no time"))
		r.Is(errorOf(r.Comm.WithContext(ctx).Shrink()), cohort.ErrCanceled, "Shrink with a context that has ended").names("no time")
		r.Is(errorOf(r.Comm.Agree(1)), cohort.ErrRequest, "Agree after a Shrink whose time ran out")
	})
	d := must(r.Comm.Shrink())
	works(r, d, all)
	r.OK(d.Close())
	r.OK(r.Comm.Barrier())
}

// agreeClosed has a rank close the communicator that the others shrink.
func agreeClosed(r *Rank) {
	c := must(r.Comm.Dup())
	if r.Rank < r.Size-1 {
		d := must(c.Shrink())
		works(r, d, without(r, lastRank))
		r.OK(d.Close())
	}
	r.OK(c.Close())
	for _, err := range []error{errorOf(c.Agree(1)), errorOf(c.Shrink()), c.Revoke()} {
		r.Is(err, cohort.ErrClosed, "recovery of a closed communicator").opError()
	}
	r.OK(r.Comm.Barrier())
}

// shrinkLeft goes on without a rank that has left in good order.
func shrinkLeft(r *Rank) {
	if r.Rank == r.Size-1 {
		r.OK(r.World.Close())
		return
	}
	agreed(r, r.World, without(r, lastRank))
	equalSlices(r, r.World.Lost(), []int{r.Size - 1}, "lost")
	d := must(r.World.Shrink())
	works(r, d, without(r, lastRank))
	r.OK(d.Close())
}

// leaving has ranks leave in good order, one after the other, while two others agree. One
// of the two may have seen a rank leave before the other has, and neither may take it for
// a failure.
func leaving(r *Rank) {
	const rounds = 10
	pair := must(r.World.Split(min(r.Rank/2, 1), 0))
	if r.Rank >= 2 {
		must(cohort.Recv(r.World, make([]int, 1), 0, 9))
		r.OK(r.World.Close())
		return
	}
	for i := range rounds * r.Size {
		if r.Rank == 0 && i%rounds == 0 && i/rounds >= 2 {
			r.OK(cohort.Send(r.World, []int{1}, i/rounds, 9))
		}
		agreed(r, pair, []int{0, 1})
		r.OK(pair.Barrier())
	}
	d := must(pair.Shrink())
	works(r, d, []int{0, 1})
	r.OK(d.Close())
}

// shrinkDead loses a rank, in an operation, and goes on without it.
func shrinkDead(r *Rank, lost func(rank, size int) bool, victim int) {
	r.endLost(lost, perish)
	r.Is(r.World.Barrier(), cohort.ErrPeerLost, "Barrier with a dead rank")
	agreed(r, r.World, without(r, lost))
	equalSlices(r, r.World.Lost(), []int{victim}, "lost")
	d := must(r.World.Shrink())
	works(r, d, without(r, lost))
	equalSlices(r, d.Lost(), nil, "lost on %s", d.Name())
	// The loss has ended the world for good.
	r.Is(r.World.Barrier(), cohort.ErrPeerLost, "Barrier of the world after Shrink")
	e := must(d.Shrink())
	works(r, e, without(r, lost))
	r.OK(e.Close())
	r.OK(d.Close())
}

// shrinkDerived loses a rank that is a member of one half of a split only.
func shrinkDerived(r *Rank) {
	last := r.Size - 1
	half := must(r.World.Split(r.Rank%2, 0))
	r.endLost(lastRank, perish)
	r.Is(errorOf(cohort.Recv(half, make([]int32, 1), cohort.AnySource, 5)), cohort.ErrPeerLost, "Recv on a communicator that the loss has ended")
	var left []int
	for i := r.Rank % 2; i < last; i += 2 {
		left = append(left, i)
	}
	agreed(r, half, left)
	d := must(half.Shrink())
	works(r, d, left)
	e := must(r.World.Shrink())
	works(r, e, without(r, func(rank, _ int) bool { return rank == last }))
	works(r, d, left)
	r.OK(e.Close())
	r.OK(d.Close())
	r.OK(half.Close())
}

// isVictim reports whether randomLosses loses a rank: every second one, and of up to 3
// ranks all but the first.
func isVictim(rank, size int) bool { return rank%2 == 1 || size <= 3 && rank > 0 }

// randomLosses is a program that recovers. It has a number of steps; the remaining ranks
// complete each together, or repeat it. Ranks are lost anywhere in it, one after the
// other or at the same time.
func randomLosses(r *Rank) {
	const steps = 40
	rng := rand.New(rand.NewPCG(uint64(r.Rank), uint64(time.Now().UnixNano())))
	end := rng.IntN(steps) // when a victim is lost
	maybe := func() {
		if isVictim(r.Rank, r.Size) && end == 0 && rng.IntN(3) == 0 {
			perish(r)
		}
	}
	brief := func(c *cohort.Comm) *cohort.Comm {
		if !isVictim(r.Rank, r.Size) || end > 0 {
			return c
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(200))*time.Microsecond)
		_ = cancel // the rank ends next
		return c.WithContext(ctx)
	}
	doomed := func(err error) {
		if err != nil && isVictim(r.Rank, r.Size) && end == 0 {
			perish(r)
		}
	}
	c := r.World
	for step := 0; step < steps; {
		maybe()
		sum, err := cohort.AllreduceOne(c, 1, cohort.Sum)
		ok := 1
		if err != nil {
			r.only(err, fmt.Sprintf("step %d", step), cohort.ErrPeerLost, cohort.ErrBroken)
			ok = 0
			r.OK(c.Revoke()) // the others may still wait in this step
		} else {
			equal(r, sum, c.Size(), "step %d: sum", step)
		}
		maybe()
		all, err := brief(c).Agree(ok)
		doomed(err)
		r.OK(err)
		if all == 1 {
			step++
			end = max(end-1, 0)
			continue
		}
		maybe()
		d, err := brief(c).Shrink()
		doomed(err)
		r.OK(err)
		d = d.WithContext(context.Background()) // d has inherited the brief one
		if c != r.World {
			r.OK(c.Close())
		}
		c = d
	}
	if isVictim(r.Rank, r.Size) {
		perish(r)
	}
	left := without(r, isVictim)
	for c.Size() > len(left) {
		r.Is(c.Barrier(), cohort.ErrPeerLost, "Barrier with a dead rank")
		c = must(c.Shrink())
	}
	works(r, c, left)
	r.OK(c.Close())
}
