package cohorttest

import (
	"errors"
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

// opError checks that an error is an OpError that names the operation and the rank.
func opError(r *Rank, what string, err error) {
	var op *cohort.OpError
	if !errors.As(err, &op) {
		r.Errorf("%s: the error %v is no OpError", what, err)
		return
	}
	if op.Rank != r.Rank || op.Op == "" {
		r.Errorf("%s: OpError of rank %d, operation %q", what, op.Rank, op.Op)
	}
}

func p2pArguments(r *Rank) {
	c := r.Comm
	buf := []int32{1, 2, 3}
	wrong := func(what string, err, want error) {
		if r.Is(err, want, "%s", what) {
			opError(r, what, err)
		}
	}
	for _, rank := range []int{r.Size, r.Size + 1000, -3, cohort.Undefined, math.MaxInt} {
		wrong(fmt.Sprintf("Send to %d", rank), cohort.Send(c, buf, rank, 1), cohort.ErrRank)
		wrong(fmt.Sprintf("Ssend to %d", rank), cohort.Ssend(c, buf, rank, 1), cohort.ErrRank)
		_, err := cohort.Isend(c, buf, rank, 1)
		wrong(fmt.Sprintf("Isend to %d", rank), err, cohort.ErrRank)
		_, err = cohort.Recv(c, buf, rank, 1)
		wrong(fmt.Sprintf("Recv from %d", rank), err, cohort.ErrRank)
		_, err = cohort.Irecv(c, buf, rank, 1)
		wrong(fmt.Sprintf("Irecv from %d", rank), err, cohort.ErrRank)
		_, err = c.Probe(rank, 1)
		wrong(fmt.Sprintf("Probe of %d", rank), err, cohort.ErrRank)
		_, _, err = c.Iprobe(rank, 1)
		wrong(fmt.Sprintf("Iprobe of %d", rank), err, cohort.ErrRank)
		_, _, err = c.Mprobe(rank, 1)
		wrong(fmt.Sprintf("Mprobe of %d", rank), err, cohort.ErrRank)
		_, err = cohort.SendInit(c, buf, rank, 1)
		wrong(fmt.Sprintf("SendInit to %d", rank), err, cohort.ErrRank)
		_, _, err = cohort.RecvAlloc[int32](c, rank, 1)
		wrong(fmt.Sprintf("RecvAlloc from %d", rank), err, cohort.ErrRank)
		_, err = cohort.Sendrecv(c, buf, rank, 1, make([]int32, 3), 0, 1)
		wrong(fmt.Sprintf("Sendrecv to %d", rank), err, cohort.ErrRank)
		_, err = cohort.Isendrecv(c, buf, 0, 1, make([]int32, 3), rank, 1)
		wrong(fmt.Sprintf("Isendrecv from %d", rank), err, cohort.ErrRank)
	}
	wrong("Send to any", cohort.Send(c, buf, cohort.AnySource, 1), cohort.ErrRank)
	most := c.Caps().MaxTag
	for _, tag := range []int{-1, -2, most + 1, max(most, cohort.MaxTag) + 1, math.MinInt} {
		wrong(fmt.Sprintf("Send with tag %d", tag), cohort.Send(c, buf, 0, tag), cohort.ErrTag)
		_, err := cohort.Issend(c, buf, 0, tag)
		wrong(fmt.Sprintf("Issend with tag %d", tag), err, cohort.ErrTag)
		if tag == cohort.AnyTag {
			continue
		}
		_, err = cohort.Recv(c, buf, 0, tag)
		wrong(fmt.Sprintf("Recv with tag %d", tag), err, cohort.ErrTag)
		_, err = cohort.RecvInit(c, buf, 0, tag)
		wrong(fmt.Sprintf("RecvInit with tag %d", tag), err, cohort.ErrTag)
		_, err = c.Probe(0, tag)
		wrong(fmt.Sprintf("Probe with tag %d", tag), err, cohort.ErrTag)
	}
	_, err := cohort.Sendrecv(c, buf[:2], 0, 1, buf[1:], 0, 1)
	wrong("Sendrecv with buffers that overlap", err, cohort.ErrBuffer)
	_, err = cohort.Isendrecv(c, buf[:2], 0, 1, buf[1:], 0, 1)
	wrong("Isendrecv with buffers that overlap", err, cohort.ErrBuffer)
	_, err = cohort.MessageRecv(nil, buf)
	r.Is(err, cohort.ErrRequest, "MessageRecv of nil")
	// None of these calls has sent anything.
	r.OK(c.Barrier())
	if st, found, err := c.Iprobe(cohort.AnySource, cohort.AnyTag); found || err != nil {
		r.Errorf("a call with wrong arguments has sent a message: %+v, %v", st, err)
	}
	r.OK(c.Barrier())
	// The largest tag is valid.
	next, prev := r.ring()
	st := must(cohort.Sendrecv(c, buf, next, most, make([]int32, 3), prev, most))
	if st.Tag != most {
		r.Errorf("tag %d, want %d", st.Tag, most)
	}
}

// wrongCall is a collective call with an argument error, made by all ranks.
type wrongCall struct {
	name string
	want error
	call func(c *cohort.Comm) error
}

// wrongCalls returns the calls for rank me of n ranks. Every rank can find the errors
// in its own arguments.
func wrongCalls(n, me int) []wrongCall {
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
	calls := []wrongCall{
		{"Allreduce with a short recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), v(2), sum) }},
		{"Allreduce with a long recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), v(4), sum) }},
		{"Allreduce with an empty recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), v(0), sum) }},
		{"Allreduce without recv", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), nil, sum) }},
		{"Allreduce without send", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.Allreduce(c, nil, v(3), sum) }},
		{"Allreduce of buffers that overlap", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.Allreduce(c, long[0:3], long[1:4], sum) }},
		{"Allreduce by no op", cohort.ErrOp, func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), v(3), cohort.Op{}) }},
		{"Allreduce of floats by Band", cohort.ErrOp, func(c *cohort.Comm) error { return cohort.Allreduce(c, f(3), f(3), cohort.Band) }},
		{"Allreduce of numbers by MinLoc", cohort.ErrOp, func(c *cohort.Comm) error { return cohort.Allreduce(c, v(3), v(3), cohort.MinLoc) }},
		{"Allreduce of complex numbers by Max", cohort.ErrOp, func(c *cohort.Comm) error {
			return cohort.Allreduce(c, make([]complex64, 1), make([]complex64, 1), cohort.Max)
		}},
		{"Allreduce by another type's op", cohort.ErrOp, func(c *cohort.Comm) error {
			return cohort.Allreduce(c, v(1), v(1), cohort.NewOp(true, func(in, inout []int64) {}))
		}},
		{"Scan with a short recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Scan(c, v(3), v(2), sum) }},
		{"Exscan with a long recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Exscan(c, v(3), v(4), sum) }},
		{"Scan of buffers that overlap", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.Scan(c, long[1:4], long[0:3], sum) }},
		{"ReduceScatterBlock with a short send", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.ReduceScatterBlock(c, v(2*n-1), v(2), sum)
		}},
		{"ReduceScatterBlock without send", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.ReduceScatterBlock(c, nil, v(2), sum) }},
		{"ReduceScatterBlock without recv", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.ReduceScatterBlock(c, v(n), nil, sum) }},
		{"ReduceScatterBlock into a part of send", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.ReduceScatterBlock(c, long[:2*n], long[1:3], sum)
		}},
		{"ReduceScatter with a negative count", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.ReduceScatter(c, v(2*n), v(2), edit(counts, -1), sum)
		}},
		{"ReduceScatter with too many counts", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.ReduceScatter(c, v(2*n), v(2), append(edit(counts, 2), 0), sum)
		}},
		{"ReduceScatter with a short send", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.ReduceScatter(c, v(2*n-1), v(2), counts, sum)
		}},
		{"ReduceScatter with a long send", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.ReduceScatter(c, v(2*n+1), v(2), counts, sum)
		}},
		{"ReduceScatter with a short recv", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.ReduceScatter(c, v(2*n), v(1), counts, sum)
		}},
		{"Allgather with a short recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Allgather(c, v(2), v(2*n-1)) }},
		{"Allgather with a long recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Allgather(c, v(2), v(2*n+1)) }},
		{"Allgather without recv", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.Allgather(c, v(2), nil) }},
		{"Allgatherv with few counts", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(2), v(2*n), counts[1:], displs)
		}},
		{"Allgatherv with few displs", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(2), v(2*n), counts, displs[1:])
		}},
		{"Allgatherv without displs", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Allgatherv(c, v(2), v(2*n), counts, nil) }},
		{"Allgatherv with a negative count", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(2), v(2*n), edit(counts, -2), displs)
		}},
		{"Allgatherv with a negative displacement", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, -1))
		}},
		{"Allgatherv with a displacement past the end", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, 2*n-1))
		}},
		{"Allgatherv with a huge displacement", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, math.MaxInt/2+1))
		}},
		{"Allgatherv with a huge count", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(2), v(2*n), edit(counts, math.MaxInt/2+1), displs)
		}},
		{"Allgatherv without recv", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.Allgatherv(c, v(2), nil, counts, displs) }},
		{"Allgatherv with a long send", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Allgatherv(c, v(3), v(2*n), counts, displs) }},
		{"Alltoall of no whole blocks", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.Alltoall(c, v(2*n + 1)[:2*n+1], v(2*n)) // for one rank: lengths that differ
		}},
		{"Alltoall with a short recv", cohort.ErrCount, func(c *cohort.Comm) error { return cohort.Alltoall(c, v(2*n), v(2*n-1)) }},
		{"Alltoall without recv", cohort.ErrBuffer, func(c *cohort.Comm) error { return cohort.Alltoall(c, v(2*n), nil) }},
		{"Alltoallv with few scounts", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.Alltoallv(c, v(2*n), counts[1:], displs, v(2*n), counts, displs)
		}},
		{"Alltoallv with few rdispls", cohort.ErrCount, func(c *cohort.Comm) error {
			return cohort.Alltoallv(c, v(2*n), counts, displs, v(2*n), counts, displs[1:])
		}},
		{"Alltoallv with a send displacement past the end", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.Alltoallv(c, v(2*n), counts, edit(displs, 2*n-1), v(2*n), counts, displs)
		}},
		{"Alltoallv with a negative receive displacement", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.Alltoallv(c, v(2*n), counts, displs, v(2*n), counts, edit(displs, -1))
		}},
		{"Alltoallv of buffers that overlap", cohort.ErrBuffer, func(c *cohort.Comm) error {
			return cohort.Alltoallv(c, long[:2*n], counts, displs, long[1:2*n+1], counts, displs)
		}},
	}
	calls = append(calls,
		wrongCall{"AlltoallvAlloc with few counts", cohort.ErrCount, func(c *cohort.Comm) error {
			_, _, err := cohort.AlltoallvAlloc(c, v(2*n), counts[1:])
			return err
		}},
		wrongCall{"AlltoallvAlloc with a negative count", cohort.ErrCount, func(c *cohort.Comm) error {
			_, _, err := cohort.AlltoallvAlloc(c, v(2*n), edit(counts, -1))
			return err
		}},
		wrongCall{"AlltoallvAlloc with a long send", cohort.ErrCount, func(c *cohort.Comm) error {
			_, _, err := cohort.AlltoallvAlloc(c, v(2*n+1), counts)
			return err
		}},
		wrongCall{"AlltoallvAlloc with huge counts", cohort.ErrCount, func(c *cohort.Comm) error {
			_, _, err := cohort.AlltoallvAlloc(c, v(2*n), each(n, func(int) int { return math.MaxInt }))
			return err
		}},
	)
	for _, root := range []int{-1, n, n + 7, math.MaxInt, cohort.Undefined} {
		calls = append(calls,
			wrongCall{fmt.Sprintf("Bcast from root %d", root), cohort.ErrRoot, func(c *cohort.Comm) error { return cohort.Bcast(c, v(2), root) }},
			wrongCall{fmt.Sprintf("Reduce to root %d", root), cohort.ErrRoot, func(c *cohort.Comm) error { return cohort.Reduce(c, v(2), v(2), sum, root) }},
			wrongCall{fmt.Sprintf("Gather to root %d", root), cohort.ErrRoot, func(c *cohort.Comm) error { return cohort.Gather(c, v(2), v(2*n), root) }},
			wrongCall{fmt.Sprintf("Gatherv to root %d", root), cohort.ErrRoot, func(c *cohort.Comm) error {
				return cohort.Gatherv(c, v(2), v(2*n), counts, displs, root)
			}},
			wrongCall{fmt.Sprintf("GathervAlloc to root %d", root), cohort.ErrRoot, func(c *cohort.Comm) error {
				_, _, err := cohort.GathervAlloc(c, v(2), root)
				return err
			}},
			wrongCall{fmt.Sprintf("Scatter from root %d", root), cohort.ErrRoot, func(c *cohort.Comm) error { return cohort.Scatter(c, v(2*n), v(2), root) }},
			wrongCall{fmt.Sprintf("Scatterv from root %d", root), cohort.ErrRoot, func(c *cohort.Comm) error {
				return cohort.Scatterv(c, v(2*n), counts, displs, v(2), root)
			}},
		)
	}
	if n > 1 {
		calls = append(calls,
			wrongCall{"Allgather in place of no whole blocks", cohort.ErrCount, func(c *cohort.Comm) error {
				return cohort.Allgather(c, long[:2*n+1], long[:2*n+1])
			}},
			wrongCall{"Allgather from a part of recv", cohort.ErrBuffer, func(c *cohort.Comm) error {
				return cohort.Allgather(c, long[2*me:2*me+2], long[:2*n])
			}},
			wrongCall{"Allgatherv with blocks that overlap", cohort.ErrBuffer, func(c *cohort.Comm) error {
				return cohort.Allgatherv(c, v(2), v(2*n), counts, edit(displs, 1))
			}},
			wrongCall{"Alltoall in place of no whole blocks", cohort.ErrCount, func(c *cohort.Comm) error {
				return cohort.Alltoall(c, long[:2*n+1], long[:2*n+1])
			}},
			wrongCall{"Alltoallv with receive blocks that overlap", cohort.ErrBuffer, func(c *cohort.Comm) error {
				return cohort.Alltoallv(c, v(2*n), counts, displs, v(2*n), counts, edit(displs, 0))
			}},
			wrongCall{"ReduceScatterBlock in place of no whole blocks", cohort.ErrCount, func(c *cohort.Comm) error {
				return cohort.ReduceScatterBlock(c, long[:2*n+1], long[:2*n+1], sum)
			}},
		)
	}
	return calls
}

// collectiveArguments has all ranks pass the same wrong arguments: each gets the
// error, and the communicator stays usable.
func collectiveArguments(r *Rank) {
	for _, w := range wrongCalls(r.Size, r.Rank) {
		err := w.call(r.Comm)
		if r.Is(err, w.want, "%s", w.name) {
			opError(r, w.name, err)
		}
		sum := must(cohort.AllreduceOne(r.Comm, 1, cohort.Sum))
		if sum != r.Size {
			r.Errorf("after %s: sum %d, want %d", w.name, sum, r.Size)
		}
	}
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
	c := r.Comm
	next, prev := r.ring()
	var x T
	what := fmt.Sprintf("%T", x)
	r.Is(cohort.Send(c, make([]T, 2), next, 1), cohort.ErrType, "Send of %s", what)
	_, err := cohort.Recv(c, make([]T, 2), prev, 1)
	r.Is(err, cohort.ErrType, "Recv of %s", what)
	_, err = cohort.Isend(c, make([]T, 2), next, 1)
	r.Is(err, cohort.ErrType, "Isend of %s", what)
	_, _, err = cohort.RecvAlloc[T](c, prev, 1)
	r.Is(err, cohort.ErrType, "RecvAlloc of %s", what)
	r.Is(cohort.Bcast(c, make([]T, 2), 0), cohort.ErrType, "Bcast of %s", what)
	r.Is(cohort.Allgather(c, make([]T, 1), make([]T, r.Size)), cohort.ErrType, "Allgather of %s", what)
	r.Is(cohort.Alltoall(c, make([]T, r.Size), make([]T, r.Size)), cohort.ErrType, "Alltoall of %s", what)
	_, _, err = cohort.AllgathervAlloc(c, make([]T, 1))
	r.Is(err, cohort.ErrType, "AllgathervAlloc of %s", what)
	_, err = cohort.BcastOne(c, x, 0)
	r.Is(err, cohort.ErrType, "BcastOne of %s", what)
	r.OK(c.Barrier())
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
			} else if r.Is(err, cohort.ErrMismatch, "%s", what) {
				names(r, err, fmt.Sprintf("rank %d", bad), "llreduce")
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
		} else if ok, err := r.mismatch(c, err, fmt.Sprintf("Bcast with a wrong root on rank %d", bad)); ok {
			names(r, err, fmt.Sprintf("rank %d", bad))
		}
		broken(r, c, "Bcast with a wrong root")
		r.OK(c.Close())
	}
}

func allreduceAs(c *cohort.Comm, how form, send, recv []int32) error {
	switch how {
	case nonblocking:
		req, err := cohort.Iallreduce(c, send, recv, cohort.Sum)
		if err != nil {
			return err
		}
		_, err = req.Wait()
		return err
	case persistent:
		p, err := cohort.AllreduceInit(c, send, recv, cohort.Sum)
		if err != nil {
			return err
		}
		defer p.Close()
		if err := p.Start(); err != nil {
			return err
		}
		_, err = p.Wait()
		return err
	}
	return cohort.Allreduce(c, send, recv, cohort.Sum)
}

// differentlyWrong has every rank pass wrong arguments, but not the same: each gets
// its own error, and the communicator is broken.
func differentlyWrong(r *Rank) {
	c := must(r.Comm.Dup())
	if r.Rank == 0 {
		r.Is(cohort.Bcast(c, make([]int32, 1), -5), cohort.ErrRoot, "a wrong root")
	} else {
		r.Is(cohort.Bcast(c, make([]*int, 1), 0), cohort.ErrType, "a wrong type")
	}
	broken(r, c, "different wrong arguments")
	r.OK(c.Close())
}

// wrongNonblocking has all ranks pass the same wrong arguments to the nonblocking and
// persistent forms: the call or Wait returns the error, and the communicator stays
// usable.
func wrongNonblocking(r *Rank) {
	for _, form := range []form{nonblocking, persistent} {
		r.Is(allreduceAs(r.Comm, form, make([]int32, 3), make([]int32, 2)), cohort.ErrCount, "%s Allreduce with a short recv", form)
		sum := must(cohort.AllreduceOne(r.Comm, 1, cohort.Sum))
		if sum != r.Size {
			r.Errorf("after a wrong %s call: sum %d, want %d", form, sum, r.Size)
		}
	}
}
