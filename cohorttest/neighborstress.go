package cohorttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Neighborhood collectives in great numbers, and ranks that leave or die between them.

// ineighborOrder starts many nonblocking calls on several neighborhoods, with blocking ones between them, and completes
// them in another order on each rank.
func ineighborOrder(r *Rank) {
	const n = 40
	both := []*neighborhood{aRing(r), gridOf(r, []int{r.Size}, []bool{true})}
	r.atEnd(both[1].close)
	rng := rand.New(rand.NewPCG(uint64(r.Rank), 1))
	for _, m := range []int{1, 500, 20000} {
		calls := filled(n, func(i int) *bound { return both[i%2].call(i/2%4, m, 10*i) })
		reqs := filled(n, func(i int) *cohort.Request {
			if i%10 == 9 {
				r.OK(both[0].call(0, 1, i).run(r, blocking))
			}
			return must(calls[i].start())
		})
		for _, i := range rng.Perm(n) {
			must(reqs[i].Wait())
			calls[i].verify(r, nonblocking)
		}
	}
}

// neighborRestarts starts persistent calls many times, several of them at once, which different ranks complete in
// different orders.
func neighborRestarts(r *Rank) {
	const n, rounds = 5, 100
	h := aRing(r)
	calls := filled(n, func(i int) *bound { return h.call(i%4, []int{1, 3000}[i%2], 1000*i) })
	all := filled(n, func(i int) *cohort.Persistent { return must(calls[i].setup()) })
	rng := rand.New(rand.NewPCG(uint64(r.Rank), 2))
	for range rounds {
		for _, i := range rng.Perm(n) {
			calls[i].renew()
			r.OK(all[i].Start())
		}
		for _, i := range rng.Perm(n) {
			must(all[i].Wait())
			calls[i].verify(r, persistent)
		}
	}
	for _, p := range all {
		r.OK(p.Close())
	}
}

// manyNeighbors makes calls on a graph with several hundred edges for each rank, most of them from and to the same
// ranks, also itself, in an order of its own on every rank.
func manyNeighbors(r *Rank) {
	const each = 300
	edges := func(rank int, salt uint64) []int { // each rank, again and again, in a random order
		all := filled(each, func(i int) int { return i % r.Size })
		// The numbers of edges between two ranks are equal in both directions.
		for i := each - each%r.Size; i < each; i++ {
			all[i] = rank
		}
		rng := rand.New(rand.NewPCG(uint64(rank), salt))
		rng.Shuffle(each, func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all
	}
	sources, dests := edges(r.Rank, 3), edges(r.Rank, 4)
	g := must(r.Comm.GraphCreate(sources, dests, false))
	// word is the j-th block that a rank sends: which edge it is of those to the same rank.
	word := func(from, to, k int) int { return (from*100+to)*1000 + k }
	send := make([]int, each)
	sent := make([]int, r.Size)
	for i, to := range dests {
		send[i] = word(r.Rank, to, sent[to])
		sent[to]++
	}
	for call := range 3 {
		recv := make([]int, each)
		if call == 1 {
			r.OK(wait(cohort.IneighborAlltoall(g, send, recv)))
		} else {
			r.OK(cohort.NeighborAlltoall(g, send, recv))
		}
		got := make([]int, r.Size)
		for i, from := range sources {
			if want := word(from, r.Rank, got[from]); recv[i] != want {
				r.Errorf("call %d: edge %d, from rank %d, brought %d, want %d", call, i, from, recv[i], want)
				break
			}
			got[from]++
		}
	}
	r.OK(g.Close())
}

// neighborMismatchLeft has the last rank make another call than the others, and close the communicator, before they
// begin. All of them learn of the mismatch from their calls, or from Close.
func neighborMismatchLeft(r *Rank) {
	if r.World.Caps().Library != "" {
		return // the check of the last rank waits for the others
	}
	last := r.Size - 1
	for _, ring := range []bool{false, true} {
		var sources, dests []int
		if ring {
			sources, dests = r.ringOfOthers()
		}
		g := must(r.Comm.GraphCreate(sources, dests, false))
		word := make([]int, 1)
		if r.Rank == last {
			err := cohort.NeighborAllgather(g, []float64{1}, []float64{})
			if err == nil {
				err = g.Close()
			}
			if err != nil && !errors.Is(err, cohort.ErrMismatch) {
				r.Errorf("the rank that makes another call: %v", err)
			}
			for other := range last {
				r.OK(cohort.Send(r.Comm, word, other, 1))
			}
			continue
		}
		must(cohort.Recv(r.Comm, word, last, 1))
		err := cohort.NeighborAllgather(g, []int{r.Rank}, make([]int, len(sources)))
		if err == nil {
			err = g.Close()
		}
		r.Is(err, cohort.ErrMismatch, "calls of ranks while rank %d made another one and left, ring %v", last, ring).names(fmt.Sprintf("rank %d", last), "float64", "int")
		if err := g.Close(); err != nil && !errors.Is(err, cohort.ErrMismatch) {
			r.OK(err)
		}
	}
}

// deadWithoutNeighbors has a rank die while the others, which need nothing from it, make calls.
func deadWithoutNeighbors(ring bool) func(r *Rank) {
	return func(r *Rank) {
		last := r.Size - 1
		var sources, dests []int
		if ring {
			sources, dests = r.ringOfOthers()
		}
		g := must(r.World.GraphCreate(sources, dests, false))
		die(r, last, func() error {
			for begun := time.Now(); ; {
				if err := cohort.NeighborAllgather(g, []int{1}, make([]int, len(sources))); err != nil {
					return err
				}
				if time.Since(begun) > late {
					return fmt.Errorf("no call has failed for %v", late)
				}
			}
		})
	}
}

// worksBeyond checks what works leaves out: neighborhoods, views and one-sided windows.
func worksBeyond(r *Rank, c *cohort.Comm, want []int) {
	n := c.Size()
	next, prev := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	g := must(c.GraphCreate([]int{prev}, []int{next}, false))
	grid := must(c.CartCreate([]int{n}, []bool{true}, true))
	for i := range 5 {
		got, sides := make([]int, 1), make([]int, 2)
		r.OK(cohort.NeighborAllgather(g, []int{10*r.Rank + i}, got))
		r.OK(wait(cohort.IneighborAllgather(grid, []int{10*r.Rank + i}, sides)))
		equal(r, [3]int{got[0], sides[0], sides[1]}, [3]int{10*want[prev] + i, 10*want[prev] + i, 10*want[next] + i}, "%s: from the neighbors", c.Name())
	}
	r.OK(grid.Close())
	r.OK(g.Close())
	const m = 20000
	from, _ := numbered(m, r.Rank)
	to, memory := strided[int64](m)
	must(cohort.SendrecvView(c, from, next, 1, to, prev, 1))
	received(r, memory, m, want[prev], c.Name()+", a view")
	w := onesided[int64](r, c, 2)
	r.OK(w.Put([]int64{int64(r.Rank)}, next, 1))
	must(w.FetchAndOp(1, 0, 0, cohort.Sum))
	lock := must(w.Lock(cohort.LockExclusive, prev))
	r.OK(lock.Unlock())
	r.OK(w.Fence())
	own := must(w.Local())
	count := int64(0)
	if c.Rank() == 0 {
		count = int64(n)
	}
	if own[0] != count || own[1] != int64(want[prev]) {
		r.Errorf("%s: the window has %v, want %d and %d", c.Name(), own, count, want[prev])
	}
	r.OK(w.Close())
}
