package cohorttest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Neighborhood collectives (MPI-4.1 section 8.6), on grids and graphs, in their three forms.

// neighborhood is a grid or a graph, and what its definition says about all ranks.
type neighborhood struct {
	name    string
	on      cohort.Neighborhood
	comm    *cohort.Comm
	close   func() error
	sources func(rank int) []int
	dests   func(rank int) []int
	// slot returns which of its blocks the i-th source of a rank sends there.
	slot func(rank, i int) int
}

// neighborhoods calls use with grids and graphs of all kinds.
func neighborhoods(r *Rank, use func(h *neighborhood)) {
	n := r.Size
	for _, g := range []struct {
		dims    []int
		periods []bool
	}{
		{[]int{n}, []bool{true}},
		{[]int{n}, []bool{false}},
		{[]int{0, 0}, []bool{false, true}},
		{[]int{1, n, 1}, []bool{true, true, false}},
		{[]int{min(n, 2), n / min(n, 2)}, []bool{true, true}}, // without the last of an odd number of ranks
		{},
	} {
		if h := gridOf(r, g.dims, g.periods); h != nil {
			use(h)
			r.OK(h.close())
		}
	}
	for _, g := range []struct {
		name  string
		edges func(from, to int) int
	}{
		{"a graph without edges", func(from, to int) int { return 0 }},
		{"the complete graph", func(from, to int) int { return 1 }},
		{"a graph with repeated edges", func(from, to int) int { return (3*from + to) % 4 }},
		{"a star", func(from, to int) int { return min(from, 1) * max(1-to, 0) * (from % 3) }},
	} {
		h := graphOf(r, r.Comm, g.name, g.edges)
		use(h)
		r.OK(h.close())
	}
}

// gridOf makes a grid, nil on a rank that it does not need.
func gridOf(r *Rank, dims []int, periods []bool) *neighborhood {
	g := must(r.Comm.CartCreate(dims, periods, false))
	if g == nil {
		return nil
	}
	around := func(rank int) (all []int) {
		at := make([]int, len(dims))
		for i, rest := len(dims)-1, rank; i >= 0; i-- {
			at[i], rest = rest%g.Dims()[i], rest/g.Dims()[i]
		}
		for i := range dims {
			all = append(all, neighbor(g.Dims(), at, i, -1, periods[i]), neighbor(g.Dims(), at, i, 1, periods[i]))
		}
		return all
	}
	// A block sent to one side arrives from the other.
	return &neighborhood{fmt.Sprintf("grid %v, periods %v", g.Dims(), periods), g, g.Comm, g.Close, around, around, func(_, i int) int { return i ^ 1 }}
}

// graphOf makes a graph with a number of edges from one rank to another.
func graphOf(r *Rank, c *cohort.Comm, name string, edges func(from, to int) int) *neighborhood {
	n, me := c.Size(), c.Rank()
	list := func(of int, count func(other int) int) (all []int) { // repeated edges are not beside each other
		for k, before := 0, -1; len(all) > before; k++ {
			before = len(all)
			for i := range n {
				if other := (i + of) % n; k < count(other) {
					all = append(all, other)
				}
			}
		}
		return all
	}
	h := &neighborhood{name: name}
	h.sources = func(rank int) []int { return list(rank, func(other int) int { return edges(other, rank) }) }
	h.dests = func(rank int) []int { return list(rank, func(other int) int { return edges(rank, other) }) }
	h.slot = func(rank, i int) int { // the k-th edge from a rank is its k-th to this one
		all := h.sources(rank)
		k := 0
		for _, s := range all[:i] {
			if s == all[i] {
				k++
			}
		}
		for j, d := range h.dests(all[i]) {
			if d == rank {
				if k == 0 {
					return j
				}
				k--
			}
		}
		panic("cohorttest: an edge without its other end")
	}
	g := must(c.GraphCreate(h.sources(me), h.dests(me), false))
	equal(r, g.Rank(), me, "%s: rank", name)
	equalSlices(r, g.Sources(), h.sources(me), "%s: sources", name)
	equalSlices(r, g.Destinations(), h.dests(me), "%s: destinations", name)
	h.on, h.comm, h.close = g, g.Comm, g.Close
	return h
}

// ringOn makes a graph in which each rank sends to both neighbors.
func ringOn(r *Rank, c *cohort.Comm) *neighborhood {
	return graphOf(r, c, "a ring", func(from, to int) (n int) {
		if (from+1)%c.Size() == to {
			n++
		}
		if (to+1)%c.Size() == from {
			n++
		}
		return n
	})
}

// aRing makes one of all ranks, which is closed at the end.
func aRing(r *Rank) *neighborhood {
	h := ringOn(r, r.Comm)
	r.atEnd(h.close)
	return h
}

// neighborFamilies are the neighborhood collectives.
func neighborFamilies[T comparable](h *neighborhood) []family[T] {
	var on cohort.Neighborhood
	if h != nil {
		on = h.on
	}
	define := func(own, ragged bool) func(a *args[T]) {
		return func(a *args[T]) { defineNeighbors(a, h, own, ragged) }
	}
	vector := func(a *args[T]) []any { return []any{a.send, a.recv} }
	return []family[T]{
		{"NeighborAllgather", false, false, define(false, false),
			[3]any{cohort.NeighborAllgather[T], cohort.IneighborAllgather[T], cohort.NeighborAllgatherInit[T]}, vector, on},
		{"NeighborAllgatherv", false, false, define(false, true),
			[3]any{cohort.NeighborAllgatherv[T], cohort.IneighborAllgatherv[T], cohort.NeighborAllgathervInit[T]},
			func(a *args[T]) []any { return []any{a.send, a.recv, a.rcounts, a.rdispls} }, on},
		{"NeighborAlltoall", false, false, define(true, false),
			[3]any{cohort.NeighborAlltoall[T], cohort.IneighborAlltoall[T], cohort.NeighborAlltoallInit[T]}, vector, on},
		{"NeighborAlltoallv", false, false, define(true, true),
			[3]any{cohort.NeighborAlltoallv[T], cohort.IneighborAlltoallv[T], cohort.NeighborAlltoallvInit[T]}, passesParts[T], on},
	}
}

// defineNeighbors fills the buffers of a call that sends each destination a different block, or all of them
// the same one, of equal or different lengths.
func defineNeighbors[T comparable](a *args[T], h *neighborhood, own, ragged bool) {
	// sends returns the lengths of a rank's blocks, where they are in send, and how long that is.
	sends := func(rank int) (counts, displs []int, n int) {
		k := len(h.dests(rank))
		switch {
		case !own && ragged:
			return each(k, func(int) int { return a.ragged(rank) }), make([]int, k), a.ragged(rank)
		case !own:
			return each(k, func(int) int { return a.m }), make([]int, k), a.m
		case ragged:
			counts = each(k, func(j int) int { return (2*rank + j + 1) % 4 * a.m / 3 })
			displs, n = a.laidOut(backwards, rank)(counts)
		default:
			counts = each(k, func(int) int { return a.m })
			displs, n = forwards(counts)
		}
		return counts, displs, n
	}
	sources := h.sources(a.rank)
	scounts, sdispls, ns := sends(a.rank)
	from := make([]int, len(sources)) // where the blocks are in the sources' buffers
	counts := each(len(sources), func(i int) int {
		if sources[i] == cohort.ProcNull {
			return a.m
		}
		c, d, _ := sends(sources[i])
		j := h.slot(a.rank, i)
		from[i] = d[j]
		return c[j]
	})
	displs, nr := forwards(counts)
	a.rcounts, a.rdispls, a.scounts, a.sdispls = nil, nil, nil, nil
	if ragged {
		displs, nr = a.laidOut(backwards, a.rank)(counts)
		a.rcounts, a.rdispls, a.scounts, a.sdispls = counts, a.given(displs, a.rank), scounts, a.given(sdispls, a.rank)
	}
	if len(scounts) == 0 {
		ns = -1 // not used
	}
	if len(sources) == 0 {
		nr = -1
	}
	a.buffers(ns, nr)
	a.put(a.send, a.rank, 0)
	a.images()
	for i, s := range sources {
		if s != cohort.ProcNull {
			a.expect(displs[i], counts[i], s, from[i])
		}
	}
}

// neighborMatrix makes the i-th collective in all forms and of all lengths, on all kinds of neighborhoods.
func neighborMatrix(r *Rank, i int) {
	neighborhoods(r, func(h *neighborhood) {
		seed := len(h.name)
		ints, threes, structs := neighborFamilies[int32](h)[i], neighborFamilies[triple](h)[i], neighborFamilies[packed](h)[i]
		ints.name += " on " + h.name
		for _, how := range forms {
			for _, m := range lengths {
				if r.Short && m != 3 && m != 1000 {
					continue
				}
				seed += 100
				if m == long {
					runCase(r, structs, packeds, shape{long / r.Size, -1, apart, seed}, how, cohort.Sum, nil)
					continue
				}
				runCase(r, ints, int32s, shape{m, -1, apart, seed}, how, cohort.Sum, nil)
				runCase(r, threes, triples, shape{m, -1, apart, seed + 1}, how, cohort.Sum, nil)
			}
		}
	})
}

// subgrids divides a grid into rows, planes and single ranks.
func subgrids(r *Rank) {
	g := must(r.Comm.CartCreate([]int{0, 0, 0}, []bool{true, false, true}, false))
	dims := g.Dims()
	at := must(g.Coords(g.Rank()))
	for bits := range 8 {
		keep := []bool{bits&1 != 0, bits&2 != 0, bits&4 != 0}
		var want, where []int
		var periods []bool
		for i, k := range keep {
			if k {
				want, where, periods = append(want, dims[i]), append(where, at[i]), append(periods, i != 1)
			}
		}
		s := must(g.Sub(keep))
		equalSlices(r, s.Dims(), want, "Sub %v of %v: extents", keep, dims)
		equalSlices(r, s.Periods(), periods, "Sub %v of %v: periods", keep, dims)
		equalSlices(r, must(s.Coords(s.Rank())), where, "Sub %v of %v: own place", keep, dims)
		for i, rank := range members(r, s.Comm) { // the rank at i has the other coordinates of this one
			x := must(s.Coords(i))
			y := slices.Clone(at)
			for j, k := 0, 0; j < 3; j++ {
				if keep[j] {
					y[j], k = x[k], k+1
				}
			}
			equal(r, must(g.CartRank(y)), rank, "Sub %v of %v: rank %d in the grid", keep, dims, i)
		}
		got := make([]int, 2*len(want))
		r.OK(cohort.NeighborAllgather(s, []int{r.Rank}, got))
		r.OK(s.Close())
	}
	r.Is(errorOf(g.Sub([]bool{true})), cohort.ErrCount, "Sub with one entry for three dimensions")
	r.OK(g.Barrier())
	r.OK(g.Close())
}

// reordered checks that ranks with other numbers have the right neighbors, and that no more neighbors are on
// different nodes than without.
func reordered(r *Rank) {
	apart := [2]int{} // pairs of neighbors on different nodes
	for i, reorder := range []bool{false, true} {
		g := must(r.Comm.CartCreate([]int{0, 0}, []bool{true, false}, reorder))
		if all := members(r, g.Comm); all[g.Rank()] != r.Rank || len(all) != r.Size || !reorder && g.Rank() != r.Rank {
			r.Errorf("reorder %v: rank %d of the grid of %v", reorder, g.Rank(), all)
		}
		node := make([]int, r.Size)
		for h, host := range g.Topology().Hosts {
			for _, rank := range host.Ranks {
				node[rank] = h
			}
		}
		got, mine := slices.Repeat([]int{cohort.ProcNull}, 4), 0
		r.OK(cohort.NeighborAllgather(g, []int{g.Rank()}, got))
		for j, x := range g.Neighbors() {
			if got[2*j] != x.Lower || got[2*j+1] != x.Upper {
				r.Errorf("reorder %v: neighbors %v, got numbers %v", reorder, g.Neighbors(), got)
			}
			if x.Upper != cohort.ProcNull && node[x.Upper] != node[g.Rank()] {
				mine++
			}
		}
		apart[i] = must(cohort.AllreduceOne(g.Comm, mine, cohort.Sum))
		r.OK(g.Close())
	}
	if apart[1] > apart[0] {
		r.Errorf("%d pairs of neighbors are on different nodes with reorder, %d without", apart[1], apart[0])
	}
}

// neighborLeft has the last rank, which has no neighbors, make its calls and close the communicator before the others
// begin with theirs. They need nothing from it. If it makes another call, all of them learn of the mismatch from their
// calls, or from Close.
func neighborLeft(wrong bool) func(r *Rank) {
	return func(r *Rank) {
		if r.World.Caps().Library != "" {
			return // the library may wait for all ranks, and the check does
		}
		last, word := r.Size-1, make([]int, 1)
		for _, edges := range []func(*Rank) ([]int, []int){(*Rank).ringOfOthers, noEdges}[:1+truth[int](wrong)] {
			sources, dests := edges(r)
			g := must(r.Comm.GraphCreate(sources, dests, false))
			if r.Rank < last {
				must(cohort.Recv(r.Comm, word, last, 1))
			}
			var err error
			for i := 0; i < 2 && err == nil; i++ {
				got := make([]int, len(sources))
				if wrong && r.Rank == last {
					err = cohort.NeighborAllgather(g, []float64{1}, []float64{})
				} else if err = cohort.NeighborAllgather(g, []int{10*i + r.Rank}, got); err == nil && !wrong && len(got) > 0 {
					equal(r, got[0], 10*i+sources[0], "call %d", i)
				}
			}
			if err == nil {
				err = g.Close()
			}
			switch {
			case !wrong:
				r.OK(err)
			case r.Rank < last || err != nil:
				r.Is(err, cohort.ErrMismatch, "calls beside that of rank %d", last).names(rankText(last), "float64", "int")
			}
			for other := 0; r.Rank == last && other < last; other++ {
				r.OK(cohort.Send(r.Comm, word, other, 1))
			}
			if err := g.Close(); err != nil && !errors.Is(err, cohort.ErrMismatch) {
				r.OK(err)
			}
		}
	}
}

func noEdges(*Rank) (sources, dests []int) { return nil, nil }

// manyNeighbors makes calls on a graph with several hundred edges for each rank, most of them from and to the same
// ranks, also itself.
func manyNeighbors(r *Rank) {
	h, rng := graphOf(r, r.Comm, "a graph with many edges", func(_, _ int) int { return 300 / r.Size }), seeded(r.scenario, r.Size)
	for i := range 12 {
		r.OK(draw(rng, nil, h, 1).run(r, forms[i%3]))
	}
	r.OK(h.close())
}
