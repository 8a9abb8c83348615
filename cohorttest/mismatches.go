package cohorttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Ranks call different collectives, or the same one with different arguments. All of
// them get ErrMismatch naming both calls and ranks, and the communicator is broken.

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
// not have to wait in it, from its next call. That is a receive whose message never comes.
func (r *Rank) mismatch(c *cohort.Comm, err error, what string) checked {
	if err == nil {
		_, err = cohort.Recv(c, make([]int32, 1), (c.Rank()+1)%c.Size(), 1)
	}
	return r.Is(err, cohort.ErrMismatch, "%s", what)
}

type (
	commCall = func(c *cohort.Comm) error
	oddComm  = oddCall[*cohort.Comm]
)

// mismatches has one rank make another call than the others, or the same one with other arguments, wrong ones too, or in
// another form. Wait of a nonblocking or persistent call reports it at the latest.
func mismatches(r *Rank) {
	n, sum := r.Size, cohort.Sum
	v := func(k int) []int32 { return make([]int32, k) }
	bcast := func(k, root int) commCall { return func(c *cohort.Comm) error { return cohort.Bcast(c, v(k), root) } }
	allreduce := func(how form, k int) commCall {
		return func(c *cohort.Comm) error { return allreduceAs(c, how, v(k), v(k)) }
	}
	reduce := func(op cohort.Op) commCall {
		return func(c *cohort.Comm) error { return cohort.Reduce(c, v(3), v(3), op, 0) }
	}
	scan := func(k int) commCall { return func(c *cohort.Comm) error { return cohort.Scan(c, v(k), v(k), sum) } }
	scatter := func(first int) commCall { // the sum of the counts is the same
		return func(c *cohort.Comm) error {
			counts := each(n, func(int) int { return 2 })
			counts[0], counts[1] = first, 4-first
			err := cohort.ReduceScatter(c, v(2*n), v(counts[c.Rank()]), counts, sum)
			says(r, "ReduceScatter", err, fmt.Sprintf("; rank %d passed the counts %v", r.Rank, counts))
			return err
		}
	}
	allgatherv := func(first int) commCall {
		return func(c *cohort.Comm) error {
			counts := each(n, func(int) int { return 3 })
			counts[0] = first
			return cohort.Allgatherv(c, v(counts[c.Rank()]), v(n*5), counts, each(n, func(i int) int { return i * 5 }))
		}
	}
	gather := func(root int) commCall {
		return func(c *cohort.Comm) error { return wait(cohort.Igather(c, v(3), v(3*n), root)) }
	}
	dup := func(c *cohort.Comm) error { return errorOf(c.Dup()) }
	ibarrier := func(c *cohort.Comm) error { return wait(c.Ibarrier()) }
	x, one := []int32{1}, each(n, func(to int) int { return 1 - min(to, 1) })
	gatherAll := func(c *cohort.Comm) error { return errorOf(cohort.AllgathervAppend(c, nil, x)) }
	appendTo := func(root int) commCall {
		return func(c *cohort.Comm) error { return errorOf(cohort.GathervAppend(c, nil, x, root)) }
	}
	// A receive of another communicator is under way meanwhile.
	got := v(1)
	req := must(cohort.Irecv(r.Comm, got, r.prev, 1))
	oneDiffers(r, false, r.fresh,
		oddComm{"another collective", allreduce(blocking, 3), (*cohort.Comm).Barrier, []string{"Allreduce", "Barrier"}},
		oddComm{"another root", bcast(3, 0), bcast(3, 1), []string{"root 0", "root 1"}},
		oddComm{"another form", bcast(3, 0), func(c *cohort.Comm) error { return wait(cohort.Ibcast(c, v(3), 0)) }, []string{"called Bcast", "Ibcast"}},
		oddComm{"another op", reduce(sum), reduce(cohort.Max), []string{"op sum", "op max"}},
		oddComm{"another type",
			func(c *cohort.Comm) error { return cohort.Allgather(c, v(3), v(3*n)) },
			func(c *cohort.Comm) error { return cohort.Allgather(c, make([]float32, 3), make([]float32, 3*n)) },
			[]string{"int32", "float32"}},
		oddComm{"another length", allreduce(blocking, 3), allreduce(blocking, 4), []string{"called Allreduce(type int32, count 3", "called Allreduce(type int32, count 4"}},
		oddComm{"another long length", bcast(70001, 0), bcast(70002, 0), []string{"count 70001", "count 70002"}},
		oddComm{"nothing where the others have something", scan(3), scan(0), []string{"count 3", "count 0"}},
		oddComm{"other counts", scatter(2), scatter(1), []string{"ReduceScatter", "; the counts differ"}},
		oddComm{"counts with another sum", allgatherv(3), allgatherv(5), []string{fmt.Sprintf("counts with the sum %d)", 3*n), fmt.Sprintf("counts with the sum %d)", 3*n+2)}},
		oddComm{"a wrong root", bcast(1, 0), func(c *cohort.Comm) error {
			return isInstead(cohort.Bcast(c, v(1), n), cohort.ErrRoot)
		}, nil},
		oddComm{"the collective that needs counts", gatherAll,
			func(c *cohort.Comm) error {
				return cohort.Allgatherv(c, x, v(n), each(n, func(int) int { return 1 }), each(n, func(i int) int { return i }))
			},
			[]string{"AllgathervAppend", "Allgatherv("}},
		oddComm{"another type of unknown counts", gatherAll,
			func(c *cohort.Comm) error { return errorOf(cohort.AllgathervAppend(c, nil, []float32{1})) }, []string{"int32", "float32"}},
		oddComm{"another root of unknown counts", appendTo(0), appendTo(1), []string{"GathervAppend", "root 0", "root 1"}},
		oddComm{"few counts",
			func(c *cohort.Comm) error { return errorOf(cohort.AlltoallvAppend(c, nil, x, one)) },
			func(c *cohort.Comm) error {
				return isInstead(errorOf(cohort.AlltoallvAppend(c, nil, x, one[1:])), cohort.ErrCount)
			},
			[]string{"AlltoallvAppend", "argument error"}},
	)
	cases := []oddComm{
		{"another nonblocking collective", func(c *cohort.Comm) error { return wait(cohort.Ibcast(c, v(3), 0)) }, ibarrier, []string{"Ibcast", "Ibarrier"}},
		{"another root, nonblocking", gather(0), gather(1), []string{"root 0", "root 1"}},
		{"another long length, nonblocking", allreduce(nonblocking, 20000), allreduce(nonblocking, 20001), []string{"count 20000", "count 20001"}},
		{"a much longer vector", allreduce(nonblocking, 3), allreduce(nonblocking, 20000), []string{"count 3", "count 20000"}}, // which may go another way
		{"a blocking call", ibarrier, (*cohort.Comm).Barrier, []string{"Ibarrier", "called Barrier"}},
		{"another length, persistent", allreduce(persistent, 3), allreduce(persistent, 4), []string{"count 3", "count 4"}},
		{"Barrier and Dup", dup, (*cohort.Comm).Barrier, []string{"Dup", "called Barrier"}},
		{"Ibarrier and Dup", dup, ibarrier, []string{"Dup", "called Ibarrier"}},
		{"Allreduce and Dup", dup, allreduce(blocking, 3), []string{"Dup", "called Allreduce"}},
		{"Split and Dup", dup, func(c *cohort.Comm) error { return errorOf(c.Split(0, 0)) }, []string{"Dup", "Split"}},
		{"SplitShared and Dup", dup, func(c *cohort.Comm) error { return errorOf(c.SplitShared()) }, []string{"Dup", "SplitShared"}},
		{"a grid and Dup", dup, func(c *cohort.Comm) error { return errorOf(c.CartCreate([]int{n}, []bool{true}, false)) },
			[]string{"Dup", "CartCreate"}},
		{"a wrong color and Dup", dup, func(c *cohort.Comm) error {
			return isInstead(errorOf(c.Split(-3, 0)), cohort.ErrRank)
		}, []string{"Dup"}},
	}
	for i, how := range forms {
		cases = slices.Concat(cases, []oddComm{
			{string(how) + " with a short recv", allreduce(how, 3), func(c *cohort.Comm) error {
				return isInstead(allreduceAs(c, how, v(3), v(2)), cohort.ErrCount)
			}, []string{"llreduce"}},
			{string(how) + " and another form", allreduce(how, 3), allreduce(forms[(i+1)%3], 3), nil},
		})
	}
	oneDiffers(r, true, r.fresh, cases...)
	// Each rank's arguments are wrong, but not the same ones: each gets its own error.
	c := r.dup()
	if r.Rank == 0 {
		r.Is(cohort.Bcast(c, v(1), -5), cohort.ErrRoot, "a wrong root")
	} else {
		r.Is(cohort.Bcast(c, make([]*int, 1), 0), cohort.ErrType, "a wrong type")
	}
	broken(r, c, "different wrong arguments")
	r.OK(cohort.Send(r.Comm, []int32{int32(r.Rank)}, r.next, 1))
	must(req.Wait())
	equal(r, got[0], int32(r.prev), "a message of a communicator beside broken ones")
}

// mismatchedPrograms runs random programs of short calls, in many of which some ranks need not wait. One rank makes one
// wrong call. Every rank is told once, by Close at the latest.
func mismatchedPrograms(r *Rank) {
	programs := r.pick(60, 400)
	if r.Comm.Backend() == "mpi" { // each program makes a communicator of the library
		programs /= 20
	}
	for seed := range programs {
		rng, err := rand.New(rand.NewPCG(uint64(seed), uint64(r.Size))), error(nil)
		length := 1 + rng.IntN(64)
		wrong, who := rng.IntN(length), rng.IntN(r.Size)
		h := ringOn(r, r.Comm)
		for i := 0; i < length && err == nil; i++ {
			b := draw(rng, nil, h, 1)
			odd := draw(rng, nil, h, 1)
			for odd.coll == b.coll {
				odd = draw(rng, nil, h, 1)
			}
			if i == wrong && r.Rank == who {
				b = odd
			}
			err = b.once(blocking)
		}
		if err == nil {
			err = h.close()
		}
		r.Is(err, cohort.ErrMismatch, "program %d of %d ranks: call %d of %d differs on rank %d", seed, r.Size, wrong, length, who)
		r.OK(h.close()) // which tells nobody again
	}
}

// mismatchedCounts has a rank send another length than its partner expects. Every rank
// gets the error, also those whose counts agree, in a neighborhood from their next call. Nothing is written outside the
// buffers.
func mismatchedCounts(r *Rank) {
	n, last := r.Size, r.Size-1
	names := []string{"Gatherv", "Scatterv", "Alltoallv", "NeighborAlltoallv"}
	for _, row := range r.rows(len(names), 2, 2, len(forms)) {
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
		g := ringGraph(r)
		f, what := moves[int32](), fmt.Sprintf("%s %s of %d, rank 0 off by %d", how, names[row[0]], m, delta)
		switch names[row[0]] {
		case "Gatherv":
			a.send = a.send[:m]
		case "Scatterv":
			a.recv, a.scounts = a.recv[:m], counts
			text = fmt.Sprintf("rank 0 sent %d elements, rank %d expects %d", m+delta, last, m)
		case "NeighborAlltoallv": // the first of two neighbors
			f = neighborFamilies[int32](&neighborhood{on: g})
			ring := []int{m, m}
			if r.Rank == 0 {
				ring[0] += delta
			}
			a.scounts, a.sdispls, a.rcounts, a.rdispls = ring, []int{0, m + 4}, []int{m, m}, []int{0, m + 4}
			text = fmt.Sprintf("rank 0 sent %d elements, rank 1 expects %d", m+delta, m)
		}
		err := named(f, names[row[0]]).once(how, g.Comm, a)
		if names[row[0]] == "NeighborAlltoallv" && r.Rank != 1 && err == nil {
			err = g.Barrier()
		}
		r.Is(err, cohort.ErrMismatch, "%s", what)
		says(r, what, err, text, "more than the ") // with a library that does not report the length
		recv.unwritten(r, what)
		broken(r, g.Comm, what)
	}
}

// wrongOnBroken makes calls with wrong arguments on a broken communicator: that it
// is broken comes first, whatever is wrong with the arguments.
func wrongOnBroken(r *Rank) {
	g := ringGraph(r)
	c := g.Comm
	r.mismatch(c, cohort.Bcast(c, make([]int32, 1+r.Rank%2), 0), "Bcast of different lengths")
	wrongCalls(r, g, func(what string, _, err error) { r.Is(err, cohort.ErrBroken, "%s on a broken communicator", what) })
	refused[int32](r, c, r.Size, 1, cohort.ErrBroken, "with a wrong rank on a broken communicator")
	refused[int32](r, c, 0, -5, cohort.ErrBroken, "with a wrong tag on a broken communicator")
}

// says checks that an error's text contains one of the given ones.
func says(r *Rank, what string, err error, texts ...string) {
	for _, text := range texts {
		if err != nil && strings.Contains(err.Error(), text) {
			return
		}
	}
	r.Errorf("%s: %v; want %q", what, err, texts[0])
}
