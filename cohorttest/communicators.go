package cohorttest

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Communicators and groups (MPI-4.1 chapters 7 and 8).

// members returns the scenario's ranks of a communicator's ranks.
func members(r *Rank, c *cohort.Comm) []int {
	all := make([]int, c.Size())
	r.OK(cohort.Allgather(c, []int{r.Rank}, all))
	return all
}

// dup checks that a duplicate has the same ranks, and that messages do not pass from one
// communicator to the other.
func dup(r *Rank) {
	d := r.dup()
	equal(r, [2]int{d.Rank(), d.Size()}, [2]int{r.Rank, r.Size}, "the duplicate's rank and size")
	r.OK(cohort.Send(r.Comm, []int32{1}, r.next, 1))
	r.OK(cohort.Send(d, []int32{2}, r.next, 1))
	got := make([]int32, 1)
	for _, c := range []struct {
		c    *cohort.Comm
		want int32
	}{{d, 2}, {r.Comm, 1}} {
		must(cohort.Recv(c.c, got, r.prev, 1))
		equal(r, got[0], c.want, "the message on %s", c.c.Name())
	}
	equalSlices(r, members(r, d), members(r, r.Comm), "the duplicate's ranks")
}

// split splits by odd and even, by thirds, not at all, in the order of ranks and in reverse, and with ranks that take no part.
func split(r *Rank) {
	for _, by := range []int{1, 2, 3, -1, -2} { // below 0: in reverse
		n, key := max(by, -by), min(by, 0)*r.Rank
		c := must(r.Comm.Split(r.Rank%n, key))
		want := []int{}
		for i := r.Rank % n; i < r.Size; i += n {
			want = append(want, i)
		}
		if by < 0 {
			slices.Reverse(want)
		}
		equalSlices(r, members(r, c), want, "split by %d: ranks", by)
		equal(r, c.Rank(), slices.Index(want, r.Rank), "split by %d: rank", by)
		r.OK(c.Close())
	}
	color := 5
	if r.Rank == 0 {
		color = cohort.Undefined
	}
	c := must(r.Comm.Split(color, 0))
	switch {
	case r.Rank == 0:
		equal(r, c, nil, "a communicator of color Undefined")
	case c == nil || c.Size() != r.Size-1 || c.Rank() != r.Rank-1:
		r.Errorf("without rank 0: %d of %d, want %d of %d", c.Rank(), c.Size(), r.Rank-1, r.Size-1)
	}
	r.OK(c.Close())
	equal(r, must(r.Comm.Split(cohort.Undefined, 0)), nil, "the communicator if all colors are Undefined")
}

// splitShared groups ranks by node. Each rank is in exactly one group, and all ranks of
// a node have the same group.
func splitShared(r *Rank) {
	c := must(r.Comm.SplitShared())
	group := members(r, c)
	if c.Rank() >= len(group) || group[c.Rank()] != r.Rank || !slices.IsSorted(group) {
		r.Errorf("ranks of this node: %v, own rank %d", group, c.Rank())
	}
	leader := make([]int, r.Size)
	r.OK(cohort.Allgather(r.Comm, []int{group[0]}, leader))
	for i, l := range leader {
		equal(r, l == group[0], slices.Contains(group, i), "rank %d has leader %d; it is in this rank's group %v", i, l, group)
	}
	if shares := r.Comm.Caps().SharedMemory; len(group) > 1 && !shares {
		r.Errorf("Caps().SharedMemory is %v, and there is a node of %d ranks", shares, len(group))
	}
	topology(r, group)
	r.OK(c.Close())
}

// topology checks that the hosts have every rank once and in order, that this rank's
// host has the ranks of its node, and that all ranks get the same hosts.
func topology(r *Rank, group []int) {
	hosts := r.Comm.Topology().Hosts
	var all []int
	last := -1
	for _, h := range hosts {
		if h.Name == "" || len(h.Ranks) == 0 || !slices.IsSorted(h.Ranks) || h.Ranks[0] < last {
			r.Errorf("host %v of %v", h, hosts)
			continue
		}
		last = h.Ranks[0]
		all = append(all, h.Ranks...)
		if slices.Contains(h.Ranks, r.Rank) && !slices.Equal(h.Ranks, group) {
			r.Errorf("ranks %v are on host %s, ranks of this node are %v", h.Ranks, h.Name, group)
		}
	}
	slices.Sort(all)
	equalSlices(r, all, without(r, nobody), "ranks of the hosts %v", hosts)
	sum := fnv.New64a()
	fmt.Fprint(sum, hosts)
	said := make([]uint64, r.Size)
	r.OK(cohort.Allgather(r.Comm, []uint64{sum.Sum64()}, said))
	for i, s := range said {
		equal(r, s, sum.Sum64(), "digest of rank %d's hosts; this rank has %v", i, hosts)
	}
}

// createGroup makes communicators of groups, several at the same time with different
// tags. Only the members call it.
func createGroup(r *Rank) {
	g := r.Comm.Group()
	equal(r, [2]int{g.Rank(), g.Size()}, [2]int{r.Rank, r.Size}, "rank and size of the group")
	reversed := each(r.Size, func(i int) int { return r.Size - 1 - i })
	var odd []int
	for i := 1; i < r.Size; i += 2 {
		odd = append(odd, i)
	}
	for tag, ranks := range [][]int{reversed, odd, {r.Size - 1}} {
		sub := must(g.Incl(ranks...))
		if !slices.Contains(ranks, r.Rank) {
			continue // not a member
		}
		c := must(r.Comm.CreateGroup(sub, tag))
		equalSlices(r, members(r, c), ranks, "communicator of a group")
		r.OK(c.Close())
	}
	most := r.Comm.Caps().MaxTag / 16
	_, err := r.Comm.CreateGroup(g, most+1)
	r.Is(err, cohort.ErrTag, "CreateGroup with tag %d", most+1)
	r.OK(must(r.Comm.CreateGroup(g, most)).Close())
}

// neighbor returns the rank one step along a dimension, by the definition of row-major
// order.
func neighbor(shape, at []int, dim, step int, period bool) int {
	row := 0
	for i, x := range at {
		if i == dim {
			x += step
			if period {
				x = (x + shape[i]) % shape[i]
			} else if x < 0 || x >= shape[i] {
				return cohort.ProcNull
			}
		}
		row = row*shape[i] + x
	}
	return row
}

// manyComms makes and closes so many communicators that a backend must reuse their
// resources.
func manyComms(r *Rank) {
	k := r.pick(50, 500)
	var kept []*cohort.Comm
	for i := range k {
		c := must(r.Comm.Dup())
		equal(r, must(cohort.AllreduceOne(c, i, cohort.Sum)), i*r.Size, "communicator %d: sum", i)
		if i%10 == 0 {
			kept = append(kept, c)
		} else {
			r.OK(c.Close())
		}
	}
	for i, c := range kept {
		equal(r, must(cohort.AllreduceOne(c, i, cohort.Max)), i, "kept communicator %d", i)
		r.OK(c.Close())
	}
}

// closing uses a communicator after Close, closes it again, and closes one with a
// pending receive.
func closing(r *Rank) {
	d := must(r.Comm.Dup())
	r.OK(d.Barrier())
	r.OK(d.Close())
	r.OK(d.Close())
	r.Is(d.Barrier(), cohort.ErrClosed, "Barrier after Close")
	refused[int32](r, d, r.next, 1, cohort.ErrClosed, "after Close")
	r.Is(errorOf(cohort.Iallreduce(d, []int32{1}, []int32{1}, cohort.Sum)), cohort.ErrClosed, "Iallreduce after Close")
	r.Is(errorOf(cohort.BcastInit(d, []int32{1}, 0)), cohort.ErrClosed, "BcastInit after Close")
	r.Is(errorOf(d.Iprobe(r.next, 1)), cohort.ErrClosed, "Iprobe after Close")
	r.Is(errorOf(d.Dup()), cohort.ErrClosed, "Dup after Close")
	r.Is(errorOf(d.Split(0, 0)), cohort.ErrClosed, "Split after Close")
	equal(r, [2]int{d.Rank(), d.Size()}, [2]int{r.Rank, r.Size}, "rank and size of a closed communicator")
	// A pending receive ends when its communicator is closed.
	d = must(r.Comm.Dup())
	req, err := cohort.Irecv(d, make([]int32, 1), r.Rank, 1) // no other rank's Close can end it
	r.OK(err)
	req.Done() // a goroutine waits for it
	r.OK(d.Close())
	r.Is(errorOf(req.Wait()), cohort.ErrClosed, "Wait for a receive of a communicator that was closed")
	refused[int32](r, nil, 0, 0, cohort.ErrComm, "on a nil communicator")
}

// closingInside closes a communicator on the last rank while another goroutine of that
// rank is in a collective. The other ranks call the collective after that.
func closingInside(r *Rank) {
	if r.World.Caps().Library != "" {
		return // a blocking function of the library cannot be ended
	}
	last := r.Size - 1
	for i := range 20 {
		d := must(r.Comm.Dup())
		if r.Rank == last {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			on, results := []*cohort.Comm{d, d.WithContext(ctx)}[i%2], make(chan error, 2)
			for range 2 {
				go func() { results <- on.Barrier() }()
			}
			r.Is(<-results, cohort.ErrBusy, "the second of two collectives at the same time") // so that the first is inside
			r.OK(d.Close())
			r.Is(<-results, cohort.ErrClosed, "Barrier of a communicator that was closed")
		}
		r.OK(r.Comm.Barrier())
		if r.Rank != last {
			if err := d.Barrier(); err != nil { // over messages, the last rank may have sent all its messages before
				r.Is(err, cohort.ErrPeerLost, "Barrier of a communicator that rank %d has closed", last)
			}
		}
		r.OK(d.Close())
	}
}
