package cohorttest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Neighborhood collectives that cannot succeed.

// ringGraph makes a ring in which each rank sends to the next one and then to the previous one, and receives from
// them in this order too.
func ringGraph(r *Rank) *cohort.Graph {
	g := must(r.Comm.GraphCreate([]int{r.next, r.prev}, []int{r.next, r.prev}, false))
	r.atEnd(g.Close)
	return g
}

// ringOfOthers returns the edges of a ring of all ranks but the last.
func (r *Rank) ringOfOthers() (sources, dests []int) {
	last := r.Size - 1
	if r.Rank == last {
		return nil, nil
	}
	return []int{(r.Rank + last - 1) % last}, []int{(r.Rank + 1) % last}
}

// graphArguments makes graphs whose edges do not have two ends, or with a wrong rank on one rank only.
func graphArguments(r *Rank) {
	last := r.Size - 1
	for _, w := range []struct {
		name       string
		first, end [2][]int // sources and destinations of rank 0 and the last rank
		own        error    // the error on rank 0, if it is its own
		words      []string
	}{
		{"an edge that its destination does not know", [2][]int{nil, {last}}, [2][]int{}, nil,
			[]string{fmt.Sprintf("rank 0 has rank %d among its destinations once", last), "never"}},
		{"an edge that its source does not know", [2][]int{}, [2][]int{{0, 0}, nil}, nil,
			[]string{fmt.Sprintf("rank 0 has rank %d among its destinations never", last), "2 times"}},
		{"a wrong rank on rank 0", [2][]int{{r.Size}, nil}, [2][]int{}, cohort.ErrRank, []string{"rank 0"}},
	} {
		c := r.dup()
		edges := map[int][2][]int{last: w.end, 0: w.first}[r.Rank]
		_, err := c.GraphCreate(edges[0], edges[1], false)
		if r.Rank == 0 && w.own != nil {
			r.Is(err, w.own, "%s", w.name)
		} else {
			r.Is(err, cohort.ErrMismatch, "%s", w.name).opError().names(w.words...)
		}
		broken(r, c, w.name)
	}
}

// mismatchedNeighbors has one rank make another call than the others. Those that do not wait for it learn of that
// from their next call.
func mismatchedNeighbors(r *Rank) {
	type odd = oddCall[*cohort.Graph]
	v := func(n int) []int32 { return make([]int32, n) }
	f := func(n int) []float32 { return make([]float32, n) }
	usual := func(g *cohort.Graph) error { return cohort.NeighborAllgather(g, v(3), v(6)) }
	nonblocking := func(g *cohort.Graph) error { return wait(cohort.IneighborAllgather(g, v(3), v(6))) }
	open := func() (*cohort.Graph, *cohort.Comm) {
		g := ringGraph(r)
		return g, g.Comm
	}
	oneDiffers(r, false, open,
		odd{"Barrier", usual, func(g *cohort.Graph) error { return g.Barrier() }, []string{"NeighborAllgather(type int32)", "Barrier"}},
		odd{"another neighborhood collective", usual, func(g *cohort.Graph) error { return cohort.NeighborAlltoall(g, v(6), v(6)) },
			[]string{"NeighborAllgather", "NeighborAlltoall"}},
		odd{"another type", usual, func(g *cohort.Graph) error { return cohort.NeighborAllgather(g, f(3), f(6)) }, []string{"int32", "float32"}},
		odd{"another form", usual, nonblocking, []string{"NeighborAllgather", "IneighborAllgather"}},
		odd{"wrong arguments", usual, func(g *cohort.Graph) error {
			r.Is(cohort.NeighborAllgather(g, v(3), v(5)), cohort.ErrCount, "NeighborAllgather with a short recv")
			return nil
		}, []string{"argument error"}},
		odd{"another collective, nonblocking", nonblocking, func(g *cohort.Graph) error { return wait(g.Ibarrier()) },
			[]string{"IneighborAllgather", "Ibarrier"}},
		odd{"another type, persistent",
			func(g *cohort.Graph) error { return errorOf(cohort.NeighborAllgatherInit(g, v(3), v(6))) },
			func(g *cohort.Graph) error { return errorOf(cohort.NeighborAllgatherInit(g, f(3), f(6))) },
			[]string{"NeighborAllgatherInit", "int32", "float32"}},
	)
	// Nobody waits for a rank without neighbors.
	g := must(r.Comm.GraphCreate(nil, nil, false))
	err := cohort.NeighborAllgather(g, v(1), v(0)) // has the mismatch if the other ranks were faster
	if err == nil && r.Rank == 0 {
		err = cohort.NeighborAllgather(g, v(1), v(0))
	} else if err == nil {
		err = g.Barrier()
	}
	if err == nil {
		err = g.Close()
	}
	r.Is(err, cohort.ErrMismatch, "calls of ranks without neighbors that differ")
	r.OK(g.Close())
}

// neighborLengthsOfOthers has rank 0 send the next rank another length than it expects. The last rank has no neighbors: it
// learns of that from the call or from Close. In every second round it calls only when rank 1 has the error.
func neighborLengthsOfOthers(r *Rank) {
	word := make([]int32, 1)
	for i := range 30 {
		how := []form{blocking, nonblocking, persistent}[i%3]
		follows := i%2 == 1 && how != nonblocking && r.World.Caps().Library == "" // others may wait for all ranks
		sources, dests := r.ringOfOthers()
		counts, displs := each(len(sources), func(int) int { return 1 }), make([]int, len(sources))
		g, err := r.Comm.GraphCreate(sources, dests, false)
		r.OK(err)
		scounts := slices.Clone(counts)
		if r.Rank == 0 {
			scounts[0] = 2
		}
		send, recv := make([]int32, 2), make([]int32, 2)
		call := func() error { return alltoallvAs(g, how, send, scounts, displs, recv, counts, displs) }
		if how == persistent {
			p, broken := cohort.NeighborAlltoallvInit(g, send, scounts, displs, recv, counts, displs) // others may run it already
			call = func() error {
				_, err := p.Run()
				return cmp.Or(broken, err, p.Close())
			}
		}
		if follows && r.Rank == r.Size-1 {
			must(cohort.Recv(r.Comm, word, 1, i))
		}
		if err = call(); err == nil {
			err = g.Close()
		}
		r.Is(err, cohort.ErrMismatch, "%s call with a wrong length from rank 0", how)
		if follows && r.Rank == 1 {
			r.OK(cohort.Send(r.Comm, word, r.Size-1, i))
		}
		r.OK(g.Close())
	}
}

func alltoallvAs(g *cohort.Graph, how form, send []int32, scounts, sdispls []int, recv []int32, rcounts, rdispls []int) error {
	a := &args[int32]{send: send, scounts: scounts, sdispls: sdispls, recv: recv, rcounts: rcounts, rdispls: rdispls}
	return neighborFamilies[int32](&neighborhood{on: g})[3].once(how, nil, a)
}
