package cohorttest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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

// neighborArguments has all ranks pass the same wrong arguments: each gets the error, and the communicator stays
// usable.
func neighborArguments(r *Rank) {
	g := ringGraph(r)
	line, err := r.Comm.CartCreate([]int{r.Size}, []bool{false}, false)
	r.OK(err)
	other := *line
	other.Comm = r.Comm
	v := func(n int) []int32 { return make([]int32, n) }
	whole := v(20)
	two, displs := []int{2, 2}, []int{0, 2}
	for _, w := range []struct {
		name string
		want error
		err  error
	}{
		{"NeighborAllgather with a short recv", cohort.ErrCount, cohort.NeighborAllgather(g, v(2), v(3))},
		{"NeighborAllgather with a long recv", cohort.ErrCount, cohort.NeighborAllgather(line, v(2), v(6))},
		{"NeighborAllgather without recv", cohort.ErrBuffer, cohort.NeighborAllgather(g, v(2), nil)},
		{"NeighborAllgather without send", cohort.ErrBuffer, cohort.NeighborAllgather(g, nil, v(2))},
		{"NeighborAllgather of a part of recv", cohort.ErrBuffer, cohort.NeighborAllgather(g, whole[3:5], whole[:4])},
		{"NeighborAllgather of strings", cohort.ErrType, cohort.NeighborAllgather(g, make([]string, 1), make([]string, 2))},
		{"NeighborAlltoall in place", cohort.ErrBuffer, cohort.NeighborAlltoall(g, whole[:4], whole[:4])},
		{"NeighborAlltoall of no whole blocks", cohort.ErrCount, cohort.NeighborAlltoall(g, v(3), v(3))},
		{"NeighborAlltoall of two lengths", cohort.ErrCount, cohort.NeighborAlltoall(g, v(4), v(6))},
		{"NeighborAllgatherv with few counts", cohort.ErrCount, cohort.NeighborAllgatherv(g, v(2), v(4), two[1:], displs)},
		{"NeighborAllgatherv with a negative count", cohort.ErrCount, cohort.NeighborAllgatherv(g, v(2), v(4), []int{2, -2}, displs)},
		{"NeighborAllgatherv with a block past the end", cohort.ErrBuffer, cohort.NeighborAllgatherv(g, v(2), v(4), two, []int{0, 3})},
		{"NeighborAllgatherv with blocks that overlap", cohort.ErrBuffer, cohort.NeighborAllgatherv(g, v(2), v(4), two, []int{0, 1})},
		{"NeighborAlltoallv with many scounts", cohort.ErrCount,
			cohort.NeighborAlltoallv(g, v(4), []int{2, 2, 0}, displs, v(4), two, displs)},
		{"NeighborAlltoallv with a send block past the end", cohort.ErrBuffer,
			cohort.NeighborAlltoallv(g, v(4), two, []int{0, 3}, v(4), two, displs)},
		{"NeighborAlltoallv with a negative displacement", cohort.ErrBuffer,
			cohort.NeighborAlltoallv(g, v(4), two, displs, v(4), two, []int{-1, 2})},
		{"NeighborAllgather on a grid with another communicator", cohort.ErrComm, cohort.NeighborAllgather(&other, v(2), v(4))},
		{"NeighborAllgather on nil", cohort.ErrComm, cohort.NeighborAllgather(nil, v(2), v(4))},
		{"NeighborAllgather on a nil grid", cohort.ErrComm, cohort.NeighborAllgather((*cohort.Cart)(nil), v(2), v(4))},
		{"NeighborAllgather on a graph that was not made", cohort.ErrComm, cohort.NeighborAllgather(&cohort.Graph{}, v(2), v(4))},
	} {
		r.Is(w.err, w.want, "%s", w.name)
	}
	q, err := cohort.IneighborAlltoall(g, v(3), v(3))
	if err == nil {
		_, err = q.Wait()
	}
	r.Is(err, cohort.ErrCount, "IneighborAlltoall of no whole blocks")
	r.Is(errorOf(cohort.NeighborAlltoallInit(g, v(3), v(3))), cohort.ErrCount, "NeighborAlltoallInit of no whole blocks")
	got := v(2)
	r.OK(cohort.NeighborAllgather(g, []int32{int32(r.Rank)}, got))
	if got[0] != int32(r.next) || got[1] != int32(r.prev) {
		r.Errorf("after wrong arguments: got %v, want %d and %d", got, r.next, r.prev)
	}
	r.OK(line.Close())
	r.OK(g.Close())
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

// mismatchedNeighborLengths has rank 0 send the next rank another length than it expects. That rank gets the error,
// and the others from their next call.
func mismatchedNeighborLengths(r *Rank) {
	for _, m := range []int{3, 20000} {
		for _, delta := range []int{1, -1} {
			for _, form := range []form{blocking, nonblocking, persistent} {
				g := ringGraph(r)
				scounts, counts, displs := []int{m, m}, []int{m, m}, []int{0, m + 1}
				if r.Rank == 0 {
					scounts[0] += delta
				}
				send, recv := make([]int32, 2*m+2), newBuffer(int32s, 2*m+2)
				err := alltoallvAs(g, form, send, scounts, displs, recv.data, counts, displs)
				what := fmt.Sprintf("%s NeighborAlltoallv of %d, rank 0 off by %d", form, m, delta)
				if r.Rank == 1 && err == nil {
					r.Errorf("%s: no error on rank 1", what)
				}
				r.mismatch(g.Comm, err, what).names("rank 0 sent", "rank 1 expects")
				recv.unwritten(r, what)
				broken(r, g.Comm, what)
			}
		}
	}
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

// neighborDeadline makes calls that a rank is absent from. Its neighbors time out, and name it.
func neighborDeadline(r *Rank) {
	for _, form := range []form{blocking, nonblocking} {
		for _, absent := range []int{0, r.Size - 1} {
			g := ringGraph(r)
			if r.Rank != absent {
				begun := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), short)
				timed := *g
				timed.Comm = g.WithContext(ctx)
				counts, displs := []int{1, 1}, []int{0, 1}
				err := alltoallvAs(&timed, form, make([]int32, 2), counts, displs, make([]int32, 2), counts, displs)
				kept(r, begun, "%s call without rank %d", form, absent)
				if err != nil || form == nonblocking || r.next == absent || r.prev == absent {
					r.Is(err, cohort.ErrTimeout, "%s call without rank %d", form, absent).names(fmt.Sprint(absent))
				}
				cancel()
			}
			r.OK(r.Comm.Barrier())
			broken(r, g.Comm, "a collective that timed out")
		}
	}
}

// deadNeighbor has a rank die while the others make calls that need it, directly or not.
func deadNeighbor(r *Rank) {
	g := must(r.World.GraphCreate([]int{r.prev}, []int{r.next}, false))
	die(r, r.Size-1, func() error {
		for {
			if err := cohort.NeighborAllgather(g, []int{1}, make([]int, 1)); err != nil {
				return err
			}
		}
	})
}
