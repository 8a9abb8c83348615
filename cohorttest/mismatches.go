package cohorttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Ranks call different collectives, or the same one with different arguments. All of
// them get ErrMismatch naming both calls and ranks, and the communicator is broken.

func mismatchScenarios() []scenario {
	return []scenario{
		{name: "mismatch/blocking", sizes: atLeast(2), body: mismatches},
		{name: "mismatch/not-waited-for", sizes: atLeast(2), body: mismatchesNotWaitedFor},
		{name: "mismatch/nonblocking", sizes: atLeast(2), body: mismatchesNonblocking},
		{name: "mismatch/persistent", sizes: atLeast(2), body: mismatchesPersistent},
		{name: "mismatch/forms", sizes: atLeast(2), body: mismatchedForms},
		{name: "mismatch/counts", sizes: atLeast(2), body: mismatchedCounts},
		{name: "mismatch/lengths", sizes: atLeast(2), body: mismatchedLengths},
		{name: "mismatch/communicators", sizes: atLeast(2), body: mismatchedManagement},
		{name: "mismatch/programs", sizes: atLeast(2), body: mismatchedPrograms},
		{name: "mismatch/others-untouched", sizes: atLeast(2), body: othersUntouched},
		{name: "mismatch/wrong-arguments-afterwards", sizes: atLeast(2), body: wrongOnBroken},
	}
}

// broken checks that every operation reports that a communicator is broken.
func broken(r *Rank, c *cohort.Comm, after string) {
	r.Is(c.Barrier(), cohort.ErrBroken, "Barrier after %s", after)
	r.Is(cohort.Send(c, []int32{1}, r.Rank, 1), cohort.ErrBroken, "Send after %s", after)
	r.Is(wait(cohort.Irecv(c, make([]int32, 1), r.Rank, 1)), cohort.ErrBroken, "Irecv after %s", after)
}

// oddCall is a call that one rank makes while the others make the usual one, with a communicator, a graph or windows.
// words are in the text of the mismatch.
type oddCall[X any] struct {
	name       string
	usual, odd func(x X) error
	words      []string
}

// errOwn stands for the error of a rank whose own arguments were wrong.
var errOwn = errors.New("this rank's argument error")

// isInstead returns errOwn if err wraps want, and err otherwise.
func isInstead(err, want error) error {
	if errors.Is(err, want) {
		return errOwn
	}
	return err
}

// oneDiffers has the first, the last, and in the whole matrix the middle rank make the odd call of each case. All ranks
// learn of it from their calls, or those that did not have to wait from the next one. The error names that rank,
// unless the words say which. It returns the communicators broken. open makes what a case is called with.
func oneDiffers[X any](r *Rank, waits bool, open func() (X, *cohort.Comm), cases ...oddCall[X]) {
	who := []int{0, r.Size - 1}
	if !r.Short && r.Size > 2 {
		who = append(who, r.Size/2)
	}
	for _, o := range cases {
		for _, rank := range who {
			x, c := open()
			call, what, words := o.usual, fmt.Sprintf("%s on rank %d", o.name, rank), o.words
			if r.Rank == rank {
				call = o.odd
			}
			if !slices.Contains(words, "rank 0") {
				words = append(words, rankText(rank))
			}
			switch err := call(x); {
			case err == errOwn:
			case waits:
				r.Is(err, cohort.ErrMismatch, "%s", what).opError().names(words...)
			default:
				r.mismatch(c, err, what).opError().names(words...)
			}
			abandon(r, c, what)
		}
	}
}

// fresh makes a communicator for a case of oneDiffers.
func (r *Rank) fresh() (*cohort.Comm, *cohort.Comm) {
	c := must(r.Comm.Dup())
	return c, c
}

// mismatch checks that this rank learns of a mismatch: by err, which the call has returned, or if the rank did
// not have to wait in it, from its next call.
func (r *Rank) mismatch(c *cohort.Comm, err error, what string) checked {
	if err == nil {
		err = c.Barrier()
	}
	return r.Is(err, cohort.ErrMismatch, "%s", what)
}

type (
	commCall = func(c *cohort.Comm) error
	oddComm  = oddCall[*cohort.Comm]
)

// mismatches has one rank differ in a blocking call.
func mismatches(r *Rank) {
	n, sum := r.Size, cohort.Sum
	v := func(k int) []int32 { return make([]int32, k) }
	bcast := func(k, root int) commCall { return func(c *cohort.Comm) error { return cohort.Bcast(c, v(k), root) } }
	allreduce := func(k int) commCall {
		return func(c *cohort.Comm) error { return cohort.Allreduce(c, v(k), v(k), sum) }
	}
	reduce := func(op cohort.Op) commCall {
		return func(c *cohort.Comm) error { return cohort.Reduce(c, v(3), v(3), op, 0) }
	}
	scan := func(k int) commCall { return func(c *cohort.Comm) error { return cohort.Scan(c, v(k), v(k), sum) } }
	scatter := func(first int) commCall { // the sum of the counts is the same
		return func(c *cohort.Comm) error {
			counts := each(n, func(int) int { return 2 })
			counts[0], counts[1] = first, 4-first
			return cohort.ReduceScatter(c, v(2*n), v(counts[c.Rank()]), counts, sum)
		}
	}
	oneDiffers(r, false, r.fresh,
		oddComm{"another collective", allreduce(3), (*cohort.Comm).Barrier, []string{"Allreduce", "Barrier"}},
		oddComm{"another root", bcast(3, 0), bcast(3, 1), []string{"root 0", "root 1"}},
		oddComm{"another op", reduce(sum), reduce(cohort.Max), []string{"op sum", "op max"}},
		oddComm{"another type",
			func(c *cohort.Comm) error { return cohort.Allgather(c, v(3), v(3*n)) },
			func(c *cohort.Comm) error { return cohort.Allgather(c, make([]float32, 3), make([]float32, 3*n)) },
			[]string{"int32", "float32"}},
		oddComm{"another length", allreduce(3), allreduce(4), []string{"count 3", "count 4"}},
		oddComm{"another long length", bcast(70001, 0), bcast(70002, 0), []string{"count 70001", "count 70002"}},
		oddComm{"nothing where the others have something", scan(3), scan(0), []string{"count 3", "count 0"}},
		oddComm{"other counts", scatter(2), scatter(1), []string{"ReduceScatter", "counts"}},
	)
}

// mismatchesNotWaitedFor has ranks differ in calls in which some need not wait. Their next call returns the
// mismatch. This holds even for a receive whose message never comes.
func mismatchesNotWaitedFor(r *Rank) {
	buf := make([]int32, 1)
	receive := func(c *cohort.Comm) error { return errorOf(cohort.Recv(c, make([]int32, 1), (r.Rank+1)%r.Size, 1)) }
	for _, o := range []struct {
		name        string
		call, after func(c *cohort.Comm) error
	}{
		{"two roots", func(c *cohort.Comm) error { return cohort.Bcast(c, buf, min(r.Rank, 1)) }, receive},
		{"two roots, then Close", func(c *cohort.Comm) error { return cohort.Bcast(c, buf, min(r.Rank, 1)) }, (*cohort.Comm).Close},
		{"two lengths", func(c *cohort.Comm) error {
			return cohort.Gather(c, make([]int32, 1+r.Rank%2), make([]int32, r.Size), 0)
		}, receive},
		{"two forms", func(c *cohort.Comm) error {
			if r.Rank == 0 {
				return cohort.Bcast(c, buf, 0)
			}
			req := must(cohort.Ibcast(c, buf, 0))
			return errorOf(req.Wait())
		}, receive},
	} {
		c, err := r.Comm.Dup()
		r.OK(err)
		if err = o.call(c); err == nil {
			err = o.after(c)
		}
		r.Is(err, cohort.ErrMismatch, "%s", o.name)
		r.OK(c.Close())
	}
}

// mismatchedPrograms runs random programs of short calls, in many of which some ranks need not wait. One rank makes one
// wrong call. Every rank is told once, by Close at the latest.
func mismatchedPrograms(r *Rank) {
	n := r.Size
	v := func(k int) []int32 { return make([]int32, k) }
	ones := each(n, func(int) int { return 1 })
	displs := each(n, func(i int) int { return i })
	ring, places := []int{1, 1}, []int{0, 1}
	calls := []func(g *cohort.Graph, root int) error{
		func(g *cohort.Graph, root int) error { return g.Barrier() },
		func(g *cohort.Graph, root int) error { return cohort.Bcast(g.Comm, v(1), root) },
		func(g *cohort.Graph, root int) error { return cohort.Gather(g.Comm, v(1), v(n), root) },
		func(g *cohort.Graph, root int) error { return cohort.Reduce(g.Comm, v(1), v(1), cohort.Sum, root) },
		func(g *cohort.Graph, root int) error { return cohort.Scatter(g.Comm, v(n), v(1), root) },
		func(g *cohort.Graph, root int) error { return cohort.Gatherv(g.Comm, v(1), v(n), ones, displs, root) },
		func(g *cohort.Graph, root int) error { return cohort.NeighborAllgather(g, v(1), v(2)) },
		func(g *cohort.Graph, root int) error {
			return cohort.Alltoallv(g.Comm, v(n), ones, displs, v(n), ones, displs)
		},
		func(g *cohort.Graph, root int) error { return cohort.NeighborAlltoall(g, v(2), v(2)) },
		func(g *cohort.Graph, root int) error {
			return cohort.NeighborAlltoallv(g, v(2), ring, places, v(2), ring, places)
		},
	}
	programs := r.pick(60, 400)
	if r.Comm.Backend() == "mpi" { // each program makes a communicator of the library
		programs /= 20
	}
	for seed := range programs {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
		length := 1 + rng.IntN(64)
		wrong, who := rng.IntN(length), rng.IntN(n)
		g := ringGraph(r)
		var err error
		for i := 0; i < length && err == nil; i++ {
			kind, root, other := rng.IntN(len(calls)), rng.IntN(n), 1+rng.IntN(len(calls)-1)
			if i == wrong && r.Rank == who {
				kind = (kind + other) % len(calls)
			}
			err = calls[kind](g, root)
		}
		if err == nil {
			err = g.Close()
		}
		r.Is(err, cohort.ErrMismatch, "program %d of %d ranks: call %d of %d differs on rank %d", seed, n, wrong, length, who)
		r.OK(g.Close()) // which tells nobody again
	}
}

// mismatchesNonblocking has one rank differ in a nonblocking call. Wait reports it at
// the latest.
func mismatchesNonblocking(r *Rank) {
	v := func(k int) []int32 { return make([]int32, k) }
	allreduce := func(k int) commCall {
		return func(c *cohort.Comm) error { return wait(cohort.Iallreduce(c, v(k), v(k), cohort.Sum)) }
	}
	gather := func(root int) commCall {
		return func(c *cohort.Comm) error { return wait(cohort.Igather(c, v(3), v(3*r.Size), root)) }
	}
	barrier := func(c *cohort.Comm) error { return wait(c.Ibarrier()) }
	oneDiffers(r, true, r.fresh,
		oddComm{"another collective", func(c *cohort.Comm) error { return wait(cohort.Ibcast(c, v(3), 0)) }, barrier, []string{"Ibcast", "Ibarrier"}},
		oddComm{"another root", gather(0), gather(1), []string{"root 0", "root 1"}},
		oddComm{"another length", allreduce(20000), allreduce(20001), []string{"count 20000", "count 20001"}},
		oddComm{"a much longer vector", allreduce(3), allreduce(20000), []string{"count 3", "count 20000"}}, // which may go another way
		oddComm{"a blocking call", barrier, (*cohort.Comm).Barrier, []string{"Ibarrier", "called Barrier"}},
	)
}

// mismatchesPersistent has one rank differ in a persistent call. The first Wait reports
// it at the latest.
func mismatchesPersistent(r *Rank) {
	allreduce := func(k int) commCall {
		return func(c *cohort.Comm) error { return allreduceAs(c, persistent, make([]int32, k), make([]int32, k)) }
	}
	oneDiffers(r, true, r.fresh, oddComm{"AllreduceInit of another length", allreduce(3), allreduce(4), []string{"count 3", "count 4"}})
}

// mismatchedForms has the ranks make one call in different forms.
func mismatchedForms(r *Rank) {
	for _, pair := range [][2]form{{blocking, nonblocking}, {blocking, persistent}, {nonblocking, persistent}, {nonblocking, blocking}, {persistent, blocking}} {
		c := r.dup()
		how := pair[0]
		if r.Rank == r.Size-1 {
			how = pair[1]
		}
		err := allreduceAs(c, how, make([]int32, 3), make([]int32, 3))
		what := fmt.Sprintf("%s and %s", pair[0], pair[1])
		r.Is(err, cohort.ErrMismatch, "%s", what).names(fmt.Sprintf("rank %d", r.Size-1))
		broken(r, c, what)
	}
}

// mismatchedCounts has a rank send another length than its partner expects. Every rank
// gets the error, also those whose counts agree, and nothing is written outside the
// buffers.
func mismatchedCounts(r *Rank) {
	n, last := r.Size, r.Size-1
	names := []string{"Gatherv", "Scatterv", "Alltoallv"}
	for _, row := range r.rows(len(names), 2, 2, 2) {
		m, delta, how := []int{3, 20000}[row[1]], []int{1, -1}[row[2]], forms[row[3]]
		// Rank 0's count for the last rank differs from the last rank's length.
		room := n * (m + 4)
		displs, right := each(n, func(i int) int { return i * (m + 4) }), each(n, func(int) int { return m })
		counts := slices.Clone(right)
		if r.Rank == 0 {
			counts[last] += delta
		}
		recv := newBuffer(int32s, room)
		a := &args[int32]{send: make([]int32, room), recv: recv.data, scounts: right, sdispls: displs, rcounts: counts, rdispls: displs}
		text := fmt.Sprintf("rank %d sent %d elements, rank 0 expects %d", last, m, m+delta)
		switch names[row[0]] {
		case "Gatherv":
			a.send = a.send[:m]
		case "Scatterv":
			a.recv, a.scounts = a.recv[:m], counts
			text = fmt.Sprintf("rank 0 sent %d elements, rank %d expects %d", m+delta, last, m)
		}
		c, f, what := r.dup(), named(moves[int32](), names[row[0]]), fmt.Sprintf("%s %s of %d, rank 0 off by %d", how, names[row[0]], m, delta)
		err := f.once(how, c, a)
		r.Is(err, cohort.ErrMismatch, "%s", what).names("rank 0", rankText(last))
		says(r, what, err, text, "more than the ") // with a library that does not report the length
		recv.unwritten(r, what)
		broken(r, c, what)
	}
}

// mismatchedManagement has one rank call a collective while the others make a
// communicator.
func mismatchedManagement(r *Rank) {
	oneDiffers(r, true, r.fresh, oddComm{"Barrier and Dup", func(c *cohort.Comm) error { return errorOf(c.Dup()) }, (*cohort.Comm).Barrier, nil})
}

// othersUntouched breaks one communicator while operations on another are under way,
// and goes on using the other.
func othersUntouched(r *Rank) {
	got := make([]int32, 1)
	req := must(cohort.Irecv(r.Comm, got, r.prev, 1))
	in, out := []int32{int32(r.Rank)}, make([]int32, 1)
	p := must(cohort.AllreduceInit(r.Comm, in, out, cohort.Max))
	c := must(r.Comm.Dup())
	r.mismatch(c, cohort.Bcast(c, make([]int32, 1+r.Rank%2), 0), "Bcast of different lengths")
	r.OK(p.Start())
	must(p.Wait())
	if out[0] != int32(r.Size-1) {
		r.Errorf("Allreduce on another communicator than the broken one: %d, want %d", out[0], r.Size-1)
	}
	r.OK(p.Close())
	r.OK(cohort.Send(r.Comm, []int32{int32(r.Rank)}, r.next, 1))
	must(req.Wait())
	if got[0] != int32(r.prev) {
		r.Errorf("got %d, want %d", got[0], r.prev)
	}
	r.OK(c.Close())
	d := r.dup()
	r.OK(d.Barrier())
}

// wrongOnBroken makes calls with wrong arguments on a broken communicator: that it
// is broken comes first, whatever is wrong with the arguments.
func wrongOnBroken(r *Rank) {
	c := r.dup()
	r.mismatch(c, cohort.Bcast(c, make([]int32, 1+r.Rank%2), 0), "Bcast of different lengths")
	wrongCalls(r, c, func(what string, _, err error) { r.Is(err, cohort.ErrBroken, "%s on a broken communicator", what) })
	for _, form := range []form{nonblocking, persistent} {
		r.Is(allreduceAs(c, form, make([]int32, 3), make([]int32, 2)), cohort.ErrBroken, "%s Allreduce with a short recv on a broken communicator", form)
	}
	refused[int32](r, c, r.Size, 1, cohort.ErrBroken, "with a wrong rank on a broken communicator")
	refused[int32](r, c, 0, -5, cohort.ErrBroken, "with a wrong tag on a broken communicator")
}
