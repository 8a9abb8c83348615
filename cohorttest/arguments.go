package cohorttest

import (
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
)

// Wrong arguments. Each gives its sentinel, the same on every backend, before anything
// is sent.

func argumentScenarios() []scenario {
	return []scenario{
		{name: "arguments/p2p", body: p2pArguments},
		{name: "arguments/collectives", body: collectiveArguments},
		{name: "arguments/types", body: typeArguments},
		{name: "arguments/one-rank", sizes: atLeast(2), body: oneRankWrong},
		{name: "arguments/different", sizes: atLeast(2), body: differentlyWrong},
		{name: "arguments/nonblocking", body: wrongNonblocking},
	}
}

func p2pArguments(r *Rank) {
	for _, rank := range []int{r.Size, r.Size + 1000, -3, cohort.Undefined, cohort.AnySource, math.MaxInt} {
		refused[int32](r, r.Comm, rank, 1, cohort.ErrRank, fmt.Sprintf("with rank %d", rank))
		if rank != cohort.AnySource {
			r.Is(errorOf(r.Comm.Iprobe(rank, 1)), cohort.ErrRank, "Iprobe of %d", rank).opError()
		}
	}
	most := r.Comm.Caps().MaxTag
	for _, tag := range []int{-1, -2, most + 1, max(most, cohort.MaxTag) + 1, math.MinInt} {
		refused[int32](r, r.Comm, 0, tag, cohort.ErrTag, fmt.Sprintf("with tag %d", tag))
	}
	buf := []int32{1, 2, 3}
	r.Is(errorOf(cohort.Sendrecv(r.Comm, buf[:2], 0, 1, buf[1:], 0, 1)), cohort.ErrBuffer, "Sendrecv with buffers that overlap").opError()
	r.Is(errorOf(cohort.Isendrecv(r.Comm, buf[:2], 0, 1, buf[1:], 0, 1)), cohort.ErrBuffer, "Isendrecv with buffers that overlap").opError()
	r.Is(errorOf(cohort.MessageRecv(nil, buf)), cohort.ErrRequest, "MessageRecv of nil")
	r.noMessage("a message of a call with wrong arguments")
	// The largest tag is valid.
	status[int32](r, must(cohort.Sendrecv(r.Comm, buf, r.next, most, make([]int32, 3), r.prev, most)), r.prev, most, 3, "the largest tag")
}

// wrongCalls makes collective calls with wrong arguments. Each rank can find the errors in its own arguments.
// check is called after each, with the error that it must have and the one that it has.
func wrongCalls(r *Rank, c *cohort.Comm, check func(what string, want, err error)) {
	n, me := r.Size, r.Rank
	v := func(k int) []int32 { return make([]int32, k) }
	f := func(k int) []float64 { return make([]float64, k) }
	long := v(4*n + 8)
	counts := each(n, func(int) int { return 2 })
	displs := each(n, func(i int) int { return 2 * i })
	edit := func(s []int, x int) []int { // x in the last place
		s = append([]int(nil), s...)
		s[len(s)-1] = x
		return s
	}
	sum := cohort.Sum
	check("Allreduce with a short recv", cohort.ErrCount, cohort.Allreduce(c, v(3), v(2), sum))
	check("Allreduce with a long recv", cohort.ErrCount, cohort.Allreduce(c, v(3), v(4), sum))
	check("Allreduce with an empty recv", cohort.ErrCount, cohort.Allreduce(c, v(3), v(0), sum))
	check("Allreduce without recv", cohort.ErrBuffer, cohort.Allreduce(c, v(3), nil, sum))
	check("Allreduce without send", cohort.ErrBuffer, cohort.Allreduce(c, nil, v(3), sum))
	check("Allreduce of buffers that overlap", cohort.ErrBuffer, cohort.Allreduce(c, long[0:3], long[1:4], sum))
	check("Allreduce by no op", cohort.ErrOp, cohort.Allreduce(c, v(3), v(3), cohort.Op{}))
	check("Allreduce of floats by Band", cohort.ErrOp, cohort.Allreduce(c, f(3), f(3), cohort.Band))
	check("Allreduce of numbers by MinLoc", cohort.ErrOp, cohort.Allreduce(c, v(3), v(3), cohort.MinLoc))
	check("Allreduce of complex numbers by Max", cohort.ErrOp, cohort.Allreduce(c, make([]complex64, 1), make([]complex64, 1), cohort.Max))
	check("Allreduce by another type's op", cohort.ErrOp, cohort.Allreduce(c, v(1), v(1), cohort.NewOp(true, func(in, inout []int64) {})))
	check("Scan with a short recv", cohort.ErrCount, cohort.Scan(c, v(3), v(2), sum))
	check("Exscan with a long recv", cohort.ErrCount, cohort.Exscan(c, v(3), v(4), sum))
	check("Scan of buffers that overlap", cohort.ErrBuffer, cohort.Scan(c, long[1:4], long[0:3], sum))
	check("ReduceScatterBlock with a short send", cohort.ErrCount, cohort.ReduceScatterBlock(c, v(2*n-1), v(2), sum))
	check("ReduceScatterBlock without send", cohort.ErrBuffer, cohort.ReduceScatterBlock(c, nil, v(2), sum))
	check("ReduceScatterBlock without recv", cohort.ErrBuffer, cohort.ReduceScatterBlock(c, v(n), nil, sum))
	check("ReduceScatterBlock into a part of send", cohort.ErrBuffer, cohort.ReduceScatterBlock(c, long[:2*n], long[1:3], sum))
	check("ReduceScatter with a negative count", cohort.ErrCount, cohort.ReduceScatter(c, v(2*n), v(2), edit(counts, -1), sum))
	check("ReduceScatter with too many counts", cohort.ErrCount, cohort.ReduceScatter(c, v(2*n), v(2), append(edit(counts, 2), 0), sum))
	check("ReduceScatter with a short send", cohort.ErrCount, cohort.ReduceScatter(c, v(2*n-1), v(2), counts, sum))
	check("ReduceScatter with a long send", cohort.ErrCount, cohort.ReduceScatter(c, v(2*n+1), v(2), counts, sum))
	check("ReduceScatter with a short recv", cohort.ErrCount, cohort.ReduceScatter(c, v(2*n), v(1), counts, sum))
	check("Allgather with a short recv", cohort.ErrCount, cohort.Allgather(c, v(2), v(2*n-1)))
	check("Allgather with a long recv", cohort.ErrCount, cohort.Allgather(c, v(2), v(2*n+1)))
	check("Allgather without recv", cohort.ErrBuffer, cohort.Allgather(c, v(2), nil))
	check("Allgatherv with few counts", cohort.ErrCount, cohort.Allgatherv(c, v(2), v(2*n), counts[1:], displs))
	check("Allgatherv with few displs", cohort.ErrCount, cohort.Allgatherv(c, v(2), v(2*n), counts, displs[1:]))
	check("Allgatherv with a negative count", cohort.ErrCount, cohort.Allgatherv(c, v(2), v(2*n), edit(counts, -2), displs))
	check("Allgatherv with a negative displacement", cohort.ErrBuffer, cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, -1)))
	check("Allgatherv with a displacement past the end", cohort.ErrBuffer, cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, 2*n-1)))
	check("Allgatherv with a huge displacement", cohort.ErrBuffer, cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, math.MaxInt/2+1)))
	check("Allgatherv with a huge count", cohort.ErrBuffer, cohort.Allgatherv(c, v(2), v(2*n), edit(counts, math.MaxInt/2+1), displs))
	check("Allgatherv without recv", cohort.ErrBuffer, cohort.Allgatherv(c, v(2), nil, counts, displs))
	check("Allgatherv with a long send", cohort.ErrCount, cohort.Allgatherv(c, v(3), v(2*n), counts, displs))
	check("Alltoall of no whole blocks", cohort.ErrCount, cohort.Alltoall(c, v(2*n+1), v(2*n))) // for one rank: lengths that differ
	check("Alltoall with a short recv", cohort.ErrCount, cohort.Alltoall(c, v(2*n), v(2*n-1)))
	check("Alltoall without recv", cohort.ErrBuffer, cohort.Alltoall(c, v(2*n), nil))
	check("Alltoallv with few scounts", cohort.ErrCount, cohort.Alltoallv(c, v(2*n), counts[1:], displs, v(2*n), counts, displs))
	check("Alltoallv with few rdispls", cohort.ErrCount, cohort.Alltoallv(c, v(2*n), counts, displs, v(2*n), counts, displs[1:]))
	check("Alltoallv with a send displacement past the end", cohort.ErrBuffer, cohort.Alltoallv(c, v(2*n), counts, edit(displs, 2*n-1), v(2*n), counts, displs))
	check("Alltoallv with a negative receive displacement", cohort.ErrBuffer, cohort.Alltoallv(c, v(2*n), counts, displs, v(2*n), counts, edit(displs, -1)))
	check("Alltoallv of buffers that overlap", cohort.ErrBuffer, cohort.Alltoallv(c, long[:2*n], counts, displs, long[1:2*n+1], counts, displs))
	check("AlltoallvAppend with few counts", cohort.ErrCount, errorOf(cohort.AlltoallvAppend(c, nil, v(2*n), counts[1:])))
	check("AlltoallvAppend with a negative count", cohort.ErrCount, errorOf(cohort.AlltoallvAppend(c, nil, v(2*n), edit(counts, -1))))
	check("AlltoallvAppend with a long send", cohort.ErrCount, errorOf(cohort.AlltoallvAppend(c, nil, v(2*n+1), counts)))
	check("AlltoallvAppend with huge counts", cohort.ErrCount, errorOf(cohort.AlltoallvAppend(c, nil, v(2*n), each(n, func(int) int { return math.MaxInt }))))
	for _, root := range []int{-1, n, n + 7, math.MaxInt, cohort.Undefined} {
		check(fmt.Sprintf("Bcast from root %d", root), cohort.ErrRoot, cohort.Bcast(c, v(2), root))
		check(fmt.Sprintf("Reduce to root %d", root), cohort.ErrRoot, cohort.Reduce(c, v(2), v(2), sum, root))
		check(fmt.Sprintf("Gather to root %d", root), cohort.ErrRoot, cohort.Gather(c, v(2), v(2*n), root))
		check(fmt.Sprintf("Gatherv to root %d", root), cohort.ErrRoot, cohort.Gatherv(c, v(2), v(2*n), counts, displs, root))
		check(fmt.Sprintf("GathervAppend to root %d", root), cohort.ErrRoot, errorOf(cohort.GathervAppend(c, nil, v(2), root)))
		check(fmt.Sprintf("Scatter from root %d", root), cohort.ErrRoot, cohort.Scatter(c, v(2*n), v(2), root))
		check(fmt.Sprintf("Scatterv from root %d", root), cohort.ErrRoot, cohort.Scatterv(c, v(2*n), counts, displs, v(2), root))
	}
	if n > 1 {
		check("Allgather in place of no whole blocks", cohort.ErrCount, cohort.Allgather(c, long[:2*n+1], long[:2*n+1]))
		check("Allgather from a part of recv", cohort.ErrBuffer, cohort.Allgather(c, long[2*me:2*me+2], long[:2*n]))
		check("Allgatherv with blocks that overlap", cohort.ErrBuffer, cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, 1)))
		check("Alltoall in place of no whole blocks", cohort.ErrCount, cohort.Alltoall(c, long[:2*n+1], long[:2*n+1]))
		check("Alltoallv with receive blocks that overlap", cohort.ErrBuffer, cohort.Alltoallv(c, v(2*n), counts, displs, v(2*n), counts, edit(displs, 0)))
		check("ReduceScatterBlock in place of no whole blocks", cohort.ErrCount, cohort.ReduceScatterBlock(c, long[:2*n+1], long[:2*n+1], sum))
	}
}

// collectiveArguments has all ranks pass the same wrong arguments: each gets the
// error, and the communicator stays usable.
func collectiveArguments(r *Rank) {
	wrongCalls(r, r.Comm, func(what string, want, err error) {
		r.Is(err, want, "%s", what).opError()
		if sum := must(cohort.AllreduceOne(r.Comm, 1, cohort.Sum)); sum != r.Size {
			r.Errorf("after %s: sum %d, want %d", what, sum, r.Size)
		}
	})
	r.OK(cohort.Bcast(r.Comm, make([]int32, long), 0))
}

type (
	withPointer struct {
		A int32
		P *int32
	}
	withSlice struct{ S []byte }
	nothing   struct{}
)

// typeArguments passes elements of types that cannot be sent.
func typeArguments(r *Rank) {
	badType[*int](r)
	badType[string](r)
	badType[withPointer](r)
	badType[withSlice](r)
	badType[map[int]int](r)
	badType[any](r)
	badType[func()](r)
	badType[chan int](r)
	badType[nothing](r)
	badType[[0]int64](r)
	badType[[2]string](r)
}

func badType[T any](r *Rank) {
	var x T
	what := fmt.Sprintf("%T", x)
	refused[T](r, r.Comm, r.next, 1, cohort.ErrType, "of "+what)
	r.Is(cohort.Bcast(r.Comm, make([]T, 2), 0), cohort.ErrType, "Bcast of %s", what)
	r.Is(cohort.Allgather(r.Comm, make([]T, 1), make([]T, r.Size)), cohort.ErrType, "Allgather of %s", what)
	r.Is(cohort.Alltoall(r.Comm, make([]T, r.Size), make([]T, r.Size)), cohort.ErrType, "Alltoall of %s", what)
	r.Is(errorOf(cohort.AllgathervAppend(r.Comm, nil, make([]T, 1))), cohort.ErrType, "AllgathervAppend of %s", what)
	r.Is(errorOf(cohort.BcastOne(r.Comm, x, 0)), cohort.ErrType, "BcastOne of %s", what)
	r.OK(r.Comm.Barrier())
}

// oneRankWrong has one rank pass wrong arguments: it gets its error, the others get
// ErrMismatch naming it, and the communicator is broken on all ranks.
func oneRankWrong(r *Rank) {
	for _, bad := range []int{0, r.Size - 1} {
		for _, form := range forms {
			c := must(r.Comm.Dup())
			n := 3
			recv := make([]int32, n)
			if r.Rank == bad {
				recv = recv[:2]
			}
			err := allreduceAs(c, form, make([]int32, n), recv)
			what := fmt.Sprintf("%s Allreduce with a short recv on rank %d", form, bad)
			if r.Rank == bad {
				r.Is(err, cohort.ErrCount, "%s, which this is", what)
			} else {
				r.Is(err, cohort.ErrMismatch, "%s", what).names(rankText(bad), "llreduce")
			}
			broken(r, c, what)
			r.OK(c.Close())
		}
		// A wrong root on one rank only.
		c := must(r.Comm.Dup())
		root := 0
		if r.Rank == bad {
			root = r.Size
		}
		err := cohort.Bcast(c, make([]int32, 1), root)
		if r.Rank == bad {
			r.Is(err, cohort.ErrRoot, "Bcast with a wrong root on this rank")
		} else {
			r.mismatch(c, err, fmt.Sprintf("Bcast with a wrong root on rank %d", bad)).names(rankText(bad))
		}
		broken(r, c, "Bcast with a wrong root")
		r.OK(c.Close())
	}
}

func allreduceAs(c *cohort.Comm, how form, send, recv []int32) error {
	return named(reductions[int32](), "Allreduce").once(how, c, &args[int32]{send: send, recv: recv, op: cohort.Sum})
}

// differentlyWrong has every rank pass wrong arguments, but not the same: each gets
// its own error, and the communicator is broken.
func differentlyWrong(r *Rank) {
	c := r.dup()
	if r.Rank == 0 {
		r.Is(cohort.Bcast(c, make([]int32, 1), -5), cohort.ErrRoot, "a wrong root")
	} else {
		r.Is(cohort.Bcast(c, make([]*int, 1), 0), cohort.ErrType, "a wrong type")
	}
	broken(r, c, "different wrong arguments")
}

// wrongNonblocking has all ranks pass the same wrong arguments to the nonblocking and
// persistent forms: the call or Wait returns the error, and the communicator stays
// usable.
func wrongNonblocking(r *Rank) {
	for _, form := range []form{nonblocking, persistent} {
		r.Is(allreduceAs(r.Comm, form, make([]int32, 3), make([]int32, 2)), cohort.ErrCount, "%s Allreduce with a short recv", form)
		if sum := must(cohort.AllreduceOne(r.Comm, 1, cohort.Sum)); sum != r.Size {
			r.Errorf("after a wrong %s call: sum %d, want %d", form, sum, r.Size)
		}
	}
}
