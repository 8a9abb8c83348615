package cohorttest

import (
	"fmt"
	"math/rand/v2"
	"strings"

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

// names checks that an error's text contains all the given words.
func names(r *Rank, err error, words ...string) {
	for _, w := range words {
		if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(w)) {
			r.Errorf("the error does not name %q: %v", w, err)
		}
	}
}

// broken checks that every operation reports that a communicator is broken.
func broken(r *Rank, c *cohort.Comm, after string) {
	r.Is(c.Barrier(), cohort.ErrBroken, "Barrier after %s", after)
	r.Is(cohort.Send(c, []int32{1}, r.Rank, 1), cohort.ErrBroken, "Send after %s", after)
	req, err := cohort.Irecv(c, make([]int32, 1), r.Rank, 1)
	if err == nil {
		_, err = req.Wait()
	}
	r.Is(err, cohort.ErrBroken, "Irecv after %s", after)
}

// odd is a call that one rank makes while the others make the usual one.
type odd struct {
	name         string
	usualN, oddN string // what the error must contain of the two calls
	usual, odd   func(c *cohort.Comm) error
}

func odds(n int) []odd {
	v := func(k int) []int32 { return make([]int32, k) }
	sum := cohort.Sum
	return []odd{
		{name: "another collective", usualN: "Allreduce", oddN: "Barrier",
			usual: func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), v(3), sum) },
			odd:   func(c *cohort.Comm) error { return c.Barrier() }},
		{name: "another root", usualN: "root 0", oddN: "root 1",
			usual: func(c *cohort.Comm) error { return cohort.Bcast(c, v(3), 0) },
			odd:   func(c *cohort.Comm) error { return cohort.Bcast(c, v(3), 1) }},
		{name: "another op", usualN: "op sum", oddN: "op max",
			usual: func(c *cohort.Comm) error { return cohort.Reduce(c, v(3), v(3), sum, 0) },
			odd:   func(c *cohort.Comm) error { return cohort.Reduce(c, v(3), v(3), cohort.Max, 0) }},
		{name: "another type", usualN: "int32", oddN: "float32",
			usual: func(c *cohort.Comm) error { return cohort.Allgather(c, v(3), v(3*n)) },
			odd: func(c *cohort.Comm) error {
				return cohort.Allgather(c, make([]float32, 3), make([]float32, 3*n))
			}},
		{name: "another length", usualN: "count 3", oddN: "count 4",
			usual: func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), v(3), sum) },
			odd:   func(c *cohort.Comm) error { return cohort.Allreduce(c, v(4), v(4), sum) }},
		{name: "another long length", usualN: "count 70001", oddN: "count 70002",
			usual: func(c *cohort.Comm) error { return cohort.Bcast(c, v(70001), 0) },
			odd:   func(c *cohort.Comm) error { return cohort.Bcast(c, v(70002), 0) }},
		{name: "nothing where the others have something", usualN: "count 3", oddN: "count 0",
			usual: func(c *cohort.Comm) error { return cohort.Scan(c, v(3), v(3), sum) },
			odd:   func(c *cohort.Comm) error { return cohort.Scan(c, v(0), v(0), sum) }},
		{name: "other counts", usualN: "ReduceScatter", oddN: "counts",
			usual: func(c *cohort.Comm) error {
				return cohort.ReduceScatter(c, v(2*n), v(2), each(n, func(int) int { return 2 }), sum)
			},
			odd: func(c *cohort.Comm) error {
				counts := each(n, func(int) int { return 2 })
				counts[0], counts[1] = 1, 3 // the sum is the same
				return cohort.ReduceScatter(c, v(2*n), v(counts[c.Rank()]), counts, sum)
			}},
	}
}

// oddRanks returns the ranks that make the odd call in case i: all of the given ones, or
// one of them in turn in the smaller matrix.
func (r *Rank) oddRanks(i int, ranks ...int) []int {
	if r.Short {
		return []int{ranks[i%len(ranks)]}
	}
	return ranks
}

// mismatch checks that this rank learns of a mismatch: by err, which the call has returned, or if the rank did
// not have to wait in it, from its next call. It returns the error that says so.
func (r *Rank) mismatch(c *cohort.Comm, err error, what string) (bool, error) {
	if err == nil {
		err = c.Barrier()
	}
	return r.Is(err, cohort.ErrMismatch, "%s", what), err
}

// mismatches has one rank differ: the first, the middle one, or the last.
func mismatches(r *Rank) {
	for i, o := range odds(r.Size) {
		for _, who := range r.oddRanks(i, 0, r.Size/2, r.Size-1) {
			c := must(r.Comm.Dup())
			what := fmt.Sprintf("%s on rank %d", o.name, who)
			call := o.usual
			if r.Rank == who {
				call = o.odd
			}
			if ok, err := r.mismatch(c, call(c), what); ok {
				// Both calls, and the rank that differs.
				names(r, err, o.usualN, o.oddN, fmt.Sprintf("rank %d", who))
				opError(r, what, err)
			}
			broken(r, c, what)
			r.OK(c.Close())
		}
	}
}

// mismatchesNotWaitedFor has ranks differ in calls in which some need not wait. Their next call returns the
// mismatch. This holds even for a receive whose message never comes.
func mismatchesNotWaitedFor(r *Rank) {
	buf := make([]int32, 1)
	receive := func(c *cohort.Comm) error {
		_, err := cohort.Recv(c, make([]int32, 1), (r.Rank+1)%r.Size, 1)
		return err
	}
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
			_, err := req.Wait()
			return err
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
	programs := 400
	if r.Short {
		programs = 60
	}
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
	type start func(c *cohort.Comm) (*cohort.Request, error)
	v := func(k int) []int32 { return make([]int32, k) }
	for _, o := range []struct {
		name       string
		usual, odd start
		words      []string
	}{
		{"another collective",
			func(c *cohort.Comm) (*cohort.Request, error) { return cohort.Ibcast(c, v(3), 0) },
			func(c *cohort.Comm) (*cohort.Request, error) { return c.Ibarrier() },
			[]string{"Ibcast", "Ibarrier"}},
		{"another root",
			func(c *cohort.Comm) (*cohort.Request, error) { return cohort.Igather(c, v(3), v(3*r.Size), 0) },
			func(c *cohort.Comm) (*cohort.Request, error) { return cohort.Igather(c, v(3), v(3*r.Size), 1) },
			[]string{"root 0", "root 1"}},
		{"another length",
			func(c *cohort.Comm) (*cohort.Request, error) {
				return cohort.Iallreduce(c, v(20000), v(20000), cohort.Sum)
			},
			func(c *cohort.Comm) (*cohort.Request, error) {
				return cohort.Iallreduce(c, v(20001), v(20001), cohort.Sum)
			},
			[]string{"count 20000", "count 20001"}},
		{"a much longer vector", // which may go another way
			func(c *cohort.Comm) (*cohort.Request, error) { return cohort.Iallreduce(c, v(3), v(3), cohort.Sum) },
			func(c *cohort.Comm) (*cohort.Request, error) {
				return cohort.Iallreduce(c, v(20000), v(20000), cohort.Sum)
			},
			[]string{"count 3", "count 20000"}},
		{"a blocking call",
			func(c *cohort.Comm) (*cohort.Request, error) { return c.Ibarrier() },
			func(c *cohort.Comm) (*cohort.Request, error) { return nil, c.Barrier() },
			[]string{"Ibarrier", "called Barrier"}},
	} {
		for _, who := range []int{0, r.Size - 1} {
			c, err := r.Comm.Dup()
			r.OK(err)
			start := o.usual
			if r.Rank == who {
				start = o.odd
			}
			req, err := start(c)
			if err == nil {
				_, err = req.Wait()
			}
			what := fmt.Sprintf("%s on rank %d", o.name, who)
			if r.Is(err, cohort.ErrMismatch, "%s", what) {
				names(r, err, append(o.words, fmt.Sprintf("rank %d", who))...)
			}
			broken(r, c, what)
			r.OK(c.Close())
		}
	}
}

// mismatchesPersistent has one rank differ in a persistent call. The first Wait reports
// it at the latest.
func mismatchesPersistent(r *Rank) {
	for _, who := range []int{0, r.Size - 1} {
		c, err := r.Comm.Dup()
		r.OK(err)
		m := 3
		if r.Rank == who {
			m = 4
		}
		p, err := cohort.AllreduceInit(c, make([]int32, m), make([]int32, m), cohort.Sum)
		if err == nil {
			if err = p.Start(); err == nil {
				_, err = p.Wait()
			}
		}
		if r.Is(err, cohort.ErrMismatch, "AllreduceInit of another length on rank %d", who) {
			names(r, err, "count 3", "count 4", fmt.Sprintf("rank %d", who))
		}
		broken(r, c, "persistent calls that differ")
		r.OK(c.Close())
	}
}

// mismatchedForms has the ranks make one call in different forms.
func mismatchedForms(r *Rank) {
	for _, pair := range [][2]form{{blocking, nonblocking}, {blocking, persistent}, {nonblocking, persistent}, {nonblocking, blocking}, {persistent, blocking}} {
		c := must(r.Comm.Dup())
		how := pair[0]
		if r.Rank == r.Size-1 {
			how = pair[1]
		}
		err := allreduceAs(c, how, make([]int32, 3), make([]int32, 3))
		what := fmt.Sprintf("%s and %s", pair[0], pair[1])
		if r.Is(err, cohort.ErrMismatch, "%s", what) {
			names(r, err, fmt.Sprintf("rank %d", r.Size-1))
		}
		broken(r, c, what)
		r.OK(c.Close())
	}
}

// mismatchedCounts has a rank send another length than its partner expects. Every rank
// gets the error, also those whose counts agree, and nothing is written outside the
// buffers.
func mismatchedCounts(r *Rank) {
	n, last := r.Size, r.Size-1
	wait := func(req *cohort.Request, err error) error {
		if err == nil {
			_, err = req.Wait()
		}
		return err
	}
	for i, m := range []int{3, 20000} {
		for j, delta := range []int{1, -1} {
			// Rank 0's count for the last rank differs from the last rank's length.
			room := n * (m + 4)
			displs := each(n, func(i int) int { return i * (m + 4) })
			right := each(n, func(int) int { return m })
			counts := append([]int(nil), right...)
			if r.Rank == 0 {
				counts[last] += delta
			}
			for k, f := range []struct {
				name string
				call func(c *cohort.Comm, recv []int32) error
			}{
				{"Gatherv", func(c *cohort.Comm, recv []int32) error {
					return cohort.Gatherv(c, make([]int32, m), recv, counts, displs, 0)
				}},
				{"Igatherv", func(c *cohort.Comm, recv []int32) error {
					return wait(cohort.Igatherv(c, make([]int32, m), recv, counts, displs, 0))
				}},
				{"Scatterv", func(c *cohort.Comm, recv []int32) error {
					return cohort.Scatterv(c, make([]int32, room), counts, displs, recv[:m], 0)
				}},
				{"Iscatterv", func(c *cohort.Comm, recv []int32) error {
					return wait(cohort.Iscatterv(c, make([]int32, room), counts, displs, recv[:m], 0))
				}},
				{"Alltoallv", func(c *cohort.Comm, recv []int32) error {
					return cohort.Alltoallv(c, make([]int32, room), right, displs, recv, counts, displs)
				}},
				{"Ialltoallv", func(c *cohort.Comm, recv []int32) error {
					return wait(cohort.Ialltoallv(c, make([]int32, room), right, displs, recv, counts, displs))
				}},
			} {
				if r.Short && (i+j+k)%2 == 1 {
					continue // the others have every pair of values
				}
				differ(r, fmt.Sprintf("%s of %d, rank 0 off by %d", f.name, m, delta), f.call, room)
			}
		}
	}
}

// differ makes a call whose counts differ between rank 0 and the last rank.
func differ(r *Rank, what string, call func(c *cohort.Comm, recv []int32) error, room int) {
	c := must(r.Comm.Dup())
	recv := newBuffer(int32s, room)
	if err := call(c, recv.data); r.Is(err, cohort.ErrMismatch, "%s", what) {
		names(r, err, "rank 0", fmt.Sprintf("rank %d", r.Size-1))
	}
	for i, x := range recv.all {
		if outside := i < guards || i >= guards+room; outside && x != int32s.guard {
			r.Errorf("%s: element %d, outside recv, was written", what, i-guards)
		}
	}
	broken(r, c, what)
	r.OK(c.Close())
}

// mismatchedManagement has one rank call a collective while the others make a
// communicator.
func mismatchedManagement(r *Rank) {
	for _, who := range []int{0, r.Size - 1} {
		c, err := r.Comm.Dup()
		r.OK(err)
		if r.Rank == who {
			err = c.Barrier()
		} else {
			_, err = c.Dup()
		}
		r.Is(err, cohort.ErrMismatch, "Barrier on rank %d, Dup on the others", who)
		broken(r, c, "Barrier and Dup")
		r.OK(c.Close())
	}
}

// othersUntouched breaks one communicator while operations on another are under way,
// and goes on using the other.
func othersUntouched(r *Rank) {
	next, prev := r.ring()
	got := make([]int32, 1)
	req := must(cohort.Irecv(r.Comm, got, prev, 1))
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
	r.OK(cohort.Send(r.Comm, []int32{int32(r.Rank)}, next, 1))
	must(req.Wait())
	if got[0] != int32(prev) {
		r.Errorf("got %d, want %d", got[0], prev)
	}
	r.OK(c.Close())
	d := must(r.Comm.Dup())
	r.OK(d.Barrier())
	r.OK(d.Close())
}

// wrongOnBroken makes calls with wrong arguments on a broken communicator: that it
// is broken comes first, whatever is wrong with the arguments.
func wrongOnBroken(r *Rank) {
	c := must(r.Comm.Dup())
	r.mismatch(c, cohort.Bcast(c, make([]int32, 1+r.Rank%2), 0), "Bcast of different lengths")
	for _, w := range wrongCalls(r.Size, r.Rank) {
		r.Is(w.call(c), cohort.ErrBroken, "%s on a broken communicator", w.name)
	}
	for _, form := range []form{nonblocking, persistent} {
		r.Is(allreduceAs(c, form, make([]int32, 3), make([]int32, 2)), cohort.ErrBroken, "%s Allreduce with a short recv on a broken communicator", form)
	}
	buf := make([]int32, 1)
	r.Is(cohort.Send(c, buf, r.Size, 1), cohort.ErrBroken, "Send to rank %d on a broken communicator", r.Size)
	r.Is(cohort.Send(c, buf, 0, -5), cohort.ErrBroken, "Send with tag -5 on a broken communicator")
	_, err := cohort.Recv(c, buf, -7, 1)
	r.Is(err, cohort.ErrBroken, "Recv from rank -7 on a broken communicator")
	_, err = cohort.Irecv(c, buf, 0, -5)
	r.Is(err, cohort.ErrBroken, "Irecv with tag -5 on a broken communicator")
	r.OK(c.Close())
}
