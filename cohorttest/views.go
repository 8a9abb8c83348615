package cohorttest

import (
	"errors"

	"github.com/cohort-hpc/cohort"
)

// Messages from and into elements that are not contiguous.

func viewScenarios() []scenario {
	return []scenario{
		{name: "views/messages", body: viewMessages},
		{name: "views/alltoall", body: viewAlltoall},
		{name: "views/wrong", body: wrongViews},
	}
}

// column returns the view of column j of a matrix with n columns.
func column[T any](matrix []T, n, j int) cohort.View[T] {
	return cohort.ViewOf(matrix[j:], cohort.Vector(len(matrix)/n, 1, n))
}

// viewMessages sends columns of a matrix around the ring in all ways, into another column, a row, or the
// other way round.
func viewMessages(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for _, rows := range []int{0, 1, 3, 1000, 20000} {
		const cols = 3
		elem := func(rank, i int) packed { return packeds.elem(value(rows, rank, i)) }
		send := newBuffer(packeds, rows*cols)
		for i := range send.data {
			send.data[i] = elem(r.Rank, i)
		}
		recv := newBuffer(packeds, rows*cols)
		out, in := column(send.data, cols, 2%max(1, len(send.data))), column(recv.data, cols, 1%max(1, len(recv.data)))
		row := make([]packed, rows)
		fromRow := cohort.ViewOf(row, cohort.Vector(1, rows, rows))
		arrived := func(what string, st cohort.Status, err error) {
			r.OK(err)
			want := newBuffer(packeds, rows*cols)
			for i := range rows {
				want.data[i*cols+1] = elem(prev, i*cols+2)
			}
			if i, ok := recv.diff(want, nil); !ok || st.Source != prev || cohort.Count[packed](st) != rows {
				r.Errorf("%s of %d rows: status %+v; element %d", what, rows, st, i)
			}
			recv.clear()
		}
		wait := func(q *cohort.Request, err error) (cohort.Status, error) {
			r.OK(err)
			return q.Wait()
		}

		q, err := cohort.IrecvView(c, in, prev, 1)
		r.OK(err)
		r.OK(cohort.SendView(c, out, next, 1))
		st, err := wait(q, nil)
		arrived("SendView to IrecvView", st, err)

		q, err = cohort.IsendView(c, out, next, 2)
		r.OK(err)
		st, err = cohort.RecvView(c, in, prev, 2)
		arrived("IsendView to RecvView", st, err)
		_, err = q.Wait()
		r.OK(err)

		st, err = cohort.SendrecvView(c, out, next, 3, in, prev, 3)
		arrived("SendrecvView", st, err)

		// A slice, and a view of one block.
		q, err = cohort.Irecv(c, row, prev, 4)
		r.OK(err)
		r.OK(cohort.SendView(c, out, next, 4))
		_, err = wait(q, nil)
		r.OK(err)
		q, err = cohort.IsendView(c, fromRow, prev, 5) // back
		r.OK(err)
		mine := newBuffer(packeds, rows*cols)
		_, err = cohort.RecvView(c, column(mine.data, cols, 0), next, 5)
		r.OK(err)
		_, err = q.Wait()
		r.OK(err)
		for i := range rows {
			if mine.data[i*cols] != elem(r.Rank, i*cols+2) || mine.data[i*cols+1] != packeds.guard {
				r.Errorf("row %d of %d came back changed", i, rows)
				break
			}
		}

		// A shorter message, of which the last elements are not there, and a longer one.
		if rows > 1 {
			q, err = cohort.IsendView(c, cohort.ViewOf(send.data[2:], cohort.Vector(rows-1, 1, cols)), next, 6)
			r.OK(err)
			st, err = wait(cohort.IrecvView(c, in, prev, 6))
			r.OK(err)
			if last := (rows-1)*cols + 1; cohort.Count[packed](st) != rows-1 || recv.data[1] != elem(prev, 2) || recv.data[last] != packeds.guard {
				r.Errorf("a view of %d rows received %d: %v … %v", rows, rows-1, recv.data[1], recv.data[last])
			}
			_, err = q.Wait()
			r.OK(err)
			q, err = cohort.IsendView(c, out, next, 7)
			r.OK(err)
			_, err = cohort.RecvView(c, cohort.ViewOf(recv.data, cohort.Vector(rows-1, 1, cols)), prev, 7)
			r.Is(err, cohort.ErrTruncate, "RecvView of a message that is too long")
			_, err = q.Wait()
			r.OK(err)
		}
	}
	// A view that is sent and received into at once.
	x := []int32{int32(r.Rank), -1, int32(r.Rank + 1000), -1}
	v := cohort.ViewOf(x, cohort.Vector(2, 1, 2))
	_, err := cohort.SendrecvView(c, v, next, 8, v, prev, 8)
	r.OK(err)
	if x[0] != int32(prev) || x[2] != int32(prev+1000) || x[1] != -1 || x[3] != -1 {
		r.Errorf("SendrecvView in place: %v from rank %d", x, prev)
	}
}

// viewAlltoall transposes a matrix of which every rank has some rows: the ranks send blocks of columns, and
// store each block as rows of the transposed matrix.
func viewAlltoall(r *Rank) {
	for _, rows := range []int{0, 1, 2, 70} { // of each rank
		n := rows * r.Size
		elem := func(i, j int) int64 { return int64(1000*i + j) }
		mine, turned := newBuffer(kind[int64]{guard: -1}, rows*n), newBuffer(kind[int64]{guard: -1}, rows*n)
		for i := range rows {
			for j := range n {
				mine.data[i*n+j] = elem(r.Rank*rows+i, j)
			}
		}
		send, recv := make([]cohort.View[int64], r.Size), make([]cohort.View[int64], r.Size)
		for to := range r.Size {
			var lens, displs []int // of a block of columns, column by column
			for j := range rows {
				for i := range rows {
					lens, displs = append(lens, 1), append(displs, i*n+to*rows+j)
				}
			}
			send[to] = cohort.ViewOf(mine.data, cohort.Indexed(lens, displs))
			recv[to] = cohort.ViewOf(turned.data, cohort.Subarray([]int{max(rows, 1), max(n, 1)}, []int{rows, rows}, []int{0, to * rows}))
		}
		r.OK(cohort.AlltoallView(r.Comm, send, recv))
		for i := range rows {
			for j := range n {
				if got, want := turned.data[i*n+j], elem(j, r.Rank*rows+i); got != want {
					r.Errorf("%d rows: element %d, %d is %d, want %d", rows, i, j, got, want)
					return
				}
			}
		}
	}
}

// wrongViews passes wrong layouts. Nothing is sent.
func wrongViews(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	good := cohort.ViewOf(make([]int32, 4), cohort.Vector(2, 1, 2))
	for what, v := range map[string]struct {
		v    cohort.View[int32]
		want error
	}{
		"outside the slice":    {cohort.ViewOf(make([]int32, 4), cohort.Vector(3, 1, 2)), cohort.ErrBuffer},
		"blocks that overlap":  {cohort.ViewOf(make([]int32, 4), cohort.Vector(2, 2, 1)), cohort.ErrCount},
		"a negative count":     {cohort.ViewOf(make([]int32, 4), cohort.Vector(-2, 2, 3)), cohort.ErrCount},
		"a part of no array":   {cohort.ViewOf(make([]int32, 4), cohort.Subarray([]int{2}, []int{2}, []int{1})), cohort.ErrCount},
		"indices that overlap": {cohort.ViewOf(make([]int32, 4), cohort.Indexed([]int{2, 2}, []int{0, 1})), cohort.ErrCount},
	} {
		_, isend := cohort.IsendView(c, v.v, next, 1)
		_, recv := cohort.RecvView(c, v.v, prev, 1)
		_, irecv := cohort.IrecvView(c, v.v, prev, 1)
		_, both := cohort.SendrecvView(c, good, next, 1, v.v, prev, 1)
		for name, err := range map[string]error{
			"sendview": cohort.SendView(c, v.v, next, 1), "isendview": isend, "recvview": recv, "irecvview": irecv, "sendrecv": both,
		} {
			if r.Is(err, v.want, "%s of %s", name, what) {
				opError(r, what, err)
				names(r, err, name)
			}
		}
		if err := errors.Join(v.v.Pack(make([]int32, 9)), v.v.Unpack(nil)); err == nil {
			r.Errorf("Pack and Unpack of %s return no error", what)
		}
	}
	r.Is(cohort.SendView(c, cohort.ViewOf(make([]*int, 4), cohort.Vector(2, 1, 2)), next, 1), cohort.ErrType, "SendView of pointers")
	r.Is(cohort.SendView(c, good, r.Size, 1), cohort.ErrRank, "SendView to a rank that does not exist")
	r.Is(cohort.AlltoallView(c, make([]cohort.View[int32], r.Size+1), make([]cohort.View[int32], r.Size)), cohort.ErrCount, "AlltoallView of too many views")
	bad := make([]cohort.View[int32], r.Size)
	bad[r.Size-1] = cohort.ViewOf([]int32{}, cohort.Vector(1, 1, 1))
	r.Is(cohort.AlltoallView(c, make([]cohort.View[int32], r.Size), bad), cohort.ErrBuffer, "AlltoallView into a view outside its slice")
	r.OK(c.Barrier())
	if st, found, err := c.Iprobe(cohort.AnySource, cohort.AnyTag); found || err != nil {
		r.Errorf("a call with a wrong layout has sent a message: %+v, %v", st, err)
	}
	// The same mistake on one rank only.
	d, err := c.Dup()
	r.OK(err)
	views := make([]cohort.View[int32], r.Size)
	if r.Rank == 0 {
		views = bad
	}
	err = cohort.AlltoallView(d, make([]cohort.View[int32], r.Size), views)
	if r.Rank == 0 {
		r.Is(err, cohort.ErrBuffer, "AlltoallView with a wrong view, which this rank passed")
	} else if ok, err := r.mismatch(d, err, "AlltoallView with a wrong view on rank 0"); ok {
		names(r, err, "rank 0", "Alltoallv")
	}
	r.OK(d.Close())
}
