package cohorttest

import (
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
)

// Wrong arguments. Each gives its sentinel, the same on every backend, before anything
// is sent.

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
func wrongCalls(r *Rank, g *cohort.Graph, check func(what string, want, err error)) {
	c, n, me := g.Comm, r.Size, r.Rank
	v := func(k int) []int32 { return make([]int32, k) }
	f := func(k int) []float64 { return make([]float64, k) }
	long := v(4*n + 20)
	counts := each(n, func(int) int { return 2 })
	displs := each(n, func(i int) int { return 2 * i })
	edit := func(s []int, x int) []int { // x in the last place
		s = append([]int(nil), s...)
		s[len(s)-1] = x
		return s
	}
	sum := cohort.Sum
	check("Allreduce with a short recv", cohort.ErrCount, cohort.Allreduce(c, v(3), v(2), sum))
	for _, how := range forms[1:] {
		check(string(how)+" Allreduce with a short recv", cohort.ErrCount, allreduceAs(c, how, v(3), v(2)))
	}
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
	empty := filled(n, func(int) cohort.View[struct{}] { return cohort.ViewOf(make([]struct{}, 10), cohort.Vector(3, 1, 2)) })
	check("AlltoallView of elements without size", cohort.ErrType, cohort.AlltoallView(c, empty, empty))
	two, places := []int{2, 2}, []int{0, 2} // of the two neighbors
	check("NeighborAllgather with a short recv", cohort.ErrCount, cohort.NeighborAllgather(g, v(2), v(3)))
	check("NeighborAllgather with a long recv", cohort.ErrCount, cohort.NeighborAllgather(g, v(2), v(6)))
	check("NeighborAllgather without recv", cohort.ErrBuffer, cohort.NeighborAllgather(g, v(2), nil))
	check("NeighborAllgather without send", cohort.ErrBuffer, cohort.NeighborAllgather(g, nil, v(2)))
	check("NeighborAllgather of a part of recv", cohort.ErrBuffer, cohort.NeighborAllgather(g, long[3:5], long[:4]))
	check("NeighborAllgather of strings", cohort.ErrType, cohort.NeighborAllgather(g, make([]string, 1), make([]string, 2)))
	check("NeighborAlltoall in place", cohort.ErrBuffer, cohort.NeighborAlltoall(g, long[:4], long[:4]))
	check("NeighborAlltoall of no whole blocks", cohort.ErrCount, cohort.NeighborAlltoall(g, v(3), v(3)))
	check("NeighborAlltoall of two lengths", cohort.ErrCount, cohort.NeighborAlltoall(g, v(4), v(6)))
	check("NeighborAllgatherv with few counts", cohort.ErrCount, cohort.NeighborAllgatherv(g, v(2), v(4), two[1:], places))
	check("NeighborAllgatherv with a negative count", cohort.ErrCount, cohort.NeighborAllgatherv(g, v(2), v(4), []int{2, -2}, places))
	check("NeighborAllgatherv with a block past the end", cohort.ErrBuffer, cohort.NeighborAllgatherv(g, v(2), v(4), two, []int{0, 3}))
	check("NeighborAllgatherv with blocks that overlap", cohort.ErrBuffer, cohort.NeighborAllgatherv(g, v(2), v(4), two, []int{0, 1}))
	check("NeighborAlltoallv with many scounts", cohort.ErrCount, cohort.NeighborAlltoallv(g, v(4), []int{2, 2, 0}, places, v(4), two, places))
	check("NeighborAlltoallv with a send block past the end", cohort.ErrBuffer, cohort.NeighborAlltoallv(g, v(4), two, []int{0, 3}, v(4), two, places))
	check("NeighborAlltoallv with a negative displacement", cohort.ErrBuffer, cohort.NeighborAlltoallv(g, v(4), two, places, v(4), two, []int{-1, 2}))
	check("IneighborAlltoall of no whole blocks", cohort.ErrCount, wait(cohort.IneighborAlltoall(g, v(3), v(3))))
	check("NeighborAlltoallInit of no whole blocks", cohort.ErrCount, errorOf(cohort.NeighborAlltoallInit(g, v(3), v(3))))
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
	g := ringGraph(r)
	wrongCalls(r, g, func(what string, want, err error) {
		r.Is(err, want, "%s", what).opError()
		equal(r, must(cohort.AllreduceOne(g.Comm, 1, cohort.Sum)), r.Size, "the sum after %s", what)
	})
	line := must(r.Comm.CartCreate([]int{r.Size}, []bool{false}, false))
	other := *line
	other.Comm = r.Comm
	for what, on := range []cohort.Neighborhood{&other, nil, (*cohort.Cart)(nil), &cohort.Graph{}} {
		r.Is(cohort.NeighborAllgather(on, []int32{1}, []int32{1, 2}), cohort.ErrComm, "NeighborAllgather on wrong neighborhood %d", what)
	}
	r.OK(line.Close())
	got := make([]int32, 2)
	r.OK(cohort.NeighborAllgather(g, []int32{int32(r.Rank)}, got))
	equal(r, [2]int32(got), [2]int32{int32(r.next), int32(r.prev)}, "from the neighbors after wrong arguments")
	r.OK(cohort.Bcast(r.Comm, make([]int32, long), 0))
}

type (
	withPointer struct {
		A int32
		P *int32
	}
	nothing struct{}
)

// typeArguments passes elements of types that cannot be sent.
func typeArguments(r *Rank) {
	badType[withPointer](r)
	badType[nothing](r)
	badType[[2]string](r)
	type bad = *int
	refused[bad](r, r.Comm, r.next, 1, cohort.ErrType, "of pointers")
	r.Is(cohort.Allgather(r.Comm, make([]bad, 1), make([]bad, r.Size)), cohort.ErrType, "Allgather of pointers")
	r.Is(cohort.Alltoall(r.Comm, make([]bad, r.Size), make([]bad, r.Size)), cohort.ErrType, "Alltoall of pointers")
	r.Is(errorOf(cohort.AllgathervAppend(r.Comm, nil, make([]bad, 1))), cohort.ErrType, "AllgathervAppend of pointers")
	r.Is(errorOf(cohort.BcastOne(r.Comm, new(int), 0)), cohort.ErrType, "BcastOne of a pointer")
	r.OK(r.Comm.Barrier())
}

func badType[T any](r *Rank) {
	what := fmt.Sprintf("%T", *new(T))
	r.Is(cohort.Send(r.Comm, make([]T, 2), r.next, 1), cohort.ErrType, "Send of %s", what)
	r.Is(cohort.Bcast(r.Comm, make([]T, 2), 0), cohort.ErrType, "Bcast of %s", what)
	r.Is(errorOf(cohort.AllocateShared[T](r.Comm, 1)), cohort.ErrType, "AllocateShared of %s", what)
	r.Is(errorOf(cohort.NewWindow[T](r.Comm, 1)), cohort.ErrType, "NewWindow of %s", what)
	r.Is(errorOf(cohort.NewSharedRegion[T](r.Comm, 1)), cohort.ErrType, "NewSharedRegion of %s", what)
}

func allreduceAs(c *cohort.Comm, how form, send, recv []int32) error {
	return allreduces[int32]().once(how, c, &args[int32]{send: send, recv: recv, op: cohort.Sum})
}
