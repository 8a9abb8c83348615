package cohorttest

import (
	"errors"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Messages from and into elements that are not contiguous.

func viewScenarios() []scenario {
	return []scenario{
		{name: "views/messages", body: viewMessages},
		{name: "views/long", turns: true, body: longViews},
		{name: "views/deadline", turns: true, sizes: atLeast(2), body: viewDeadline},
		{name: "views/allocations", turns: true, sizes: atLeast(2), body: viewAllocations},
		{name: "views/alltoall", body: viewAlltoall},
		{name: "views/alltoall-contiguous", body: contiguousAlltoall},
		{name: "views/wrong", body: wrongViews},
		{name: "views/limits", body: viewLimits},
		{name: "views/chain", body: viewChain},
		{name: "views/many", turns: true, body: manyViews},
		{name: "views/goroutines", turns: true, body: viewGoroutines},
		{name: "views/close", turns: true, body: viewClose},
		{name: "views/cut", turns: true, body: viewCut},
		{name: "views/alltoall-odd", body: oddAlltoall},
	}
}

// column returns the view of column j of a matrix with n columns.
func column[T any](matrix []T, n, j int) cohort.View[T] {
	return cohort.ViewOf(matrix[j:], cohort.Vector(len(matrix)/n, 1, n))
}

// sendColumns sends columns of a matrix around the ring in all ways, into another column, a row, or the
// other way round.
func sendColumns[T comparable](r *Rank, k kind[T], lengths ...int) {
	c := r.Comm
	next, prev := r.ring()
	for _, rows := range lengths {
		const cols = 3
		elem := func(rank, i int) T { return k.elem(value(rows, rank, i)) }
		send := newBuffer(k, rows*cols)
		for i := range send.data {
			send.data[i] = elem(r.Rank, i)
		}
		recv := newBuffer(k, rows*cols)
		out, in := column(send.data, cols, 2%max(1, len(send.data))), column(recv.data, cols, 1%max(1, len(recv.data)))
		row := make([]T, rows)
		fromRow := cohort.ViewOf(row, cohort.Vector(1, rows, rows))
		arrived := func(what string, st cohort.Status, err error) {
			r.OK(err)
			want := newBuffer(k, rows*cols)
			for i := range rows {
				want.data[i*cols+1] = elem(prev, i*cols+2)
			}
			if i, ok := recv.diff(want, nil); !ok || st.Source != prev || cohort.Count[T](st) != rows {
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

		q = must(cohort.IsendView(c, out, next, 2))
		st, err = cohort.RecvView(c, in, prev, 2)
		arrived("IsendView to RecvView", st, err)
		must(q.Wait())

		st, err = cohort.SendrecvView(c, out, next, 3, in, prev, 3)
		arrived("SendrecvView", st, err)

		// A slice, and a view of one block.
		q = must(cohort.Irecv(c, row, prev, 4))
		r.OK(cohort.SendView(c, out, next, 4))
		must(wait(q, nil))
		q, err = cohort.IsendView(c, fromRow, prev, 5) // back
		r.OK(err)
		mine := newBuffer(k, rows*cols)
		must(cohort.RecvView(c, column(mine.data, cols, 0), next, 5))
		must(q.Wait())
		for i := range rows {
			if mine.data[i*cols] != elem(r.Rank, i*cols+2) || mine.data[i*cols+1] != k.guard {
				r.Errorf("row %d of %d came back changed", i, rows)
				break
			}
		}

		// A shorter message, of which the last elements are not there, and a longer one.
		if rows > 1 {
			q = must(cohort.IsendView(c, cohort.ViewOf(send.data[2:], cohort.Vector(rows-1, 1, cols)), next, 6))
			st = must(wait(cohort.IrecvView(c, in, prev, 6)))
			if last := (rows-1)*cols + 1; cohort.Count[T](st) != rows-1 || recv.data[1] != elem(prev, 2) || recv.data[last] != k.guard {
				r.Errorf("a view of %d rows received %d: %v … %v", rows, rows-1, recv.data[1], recv.data[last])
			}
			must(q.Wait())
			q = must(cohort.IsendView(c, out, next, 7))
			r.Is(errorOf(cohort.RecvView(c, cohort.ViewOf(recv.data, cohort.Vector(rows-1, 1, cols)), prev, 7)), cohort.ErrTruncate, "RecvView of a message that is too long")
			must(q.Wait())
		}
	}
}

// viewMessages sends columns, of which the longest are packed in pieces that elements do not divide.
func viewMessages(r *Rank) {
	sendColumns(r, packeds, 0, 1, 3, 1000, 20000)
	sendColumns(r, triples, 90000)
	type wide = [40000]byte // no piece has room for one
	sendColumns(r, kind[wide]{"wide", func(x int) wide { return wide{byte(x), 39999: byte(x)} }, wide{0xa5}}, 5)
	c := r.Comm
	next, prev := r.ring()
	// Views of the same memory that are sent and received into at once: the same one, and others.
	for _, n := range []int{2, 100000} {
		odd, back := make([]int, n), make([]int, n)
		for i := range n {
			odd[i], back[i] = 1, 2*(n-1-i)
		}
		for k, l := range [][2]cohort.Layout{
			{cohort.Vector(n, 1, 2), cohort.Vector(n, 1, 2)},
			{cohort.Vector(n, 1, 2), cohort.Indexed(odd, back)},
			{cohort.Vector(1, n, n), cohort.Indexed(odd, back)},
			{cohort.Indexed(odd, back), cohort.Vector(1, n, n)},
		} {
			x, want := make([]int32, 2*n), make([]int32, 2*n)
			content := func(buf []int32, rank int) []int32 {
				for i := range buf {
					buf[i] = int32(rank*1_000_000 + i)
				}
				return buf
			}
			message := make([]int32, n)
			r.OK(cohort.ViewOf(content(x, prev), l[0]).Pack(message))
			r.OK(cohort.ViewOf(content(want, r.Rank), l[1]).Unpack(message))
			must(cohort.SendrecvView(c, cohort.ViewOf(content(x, r.Rank), l[0]), next, 8, cohort.ViewOf(x, l[1]), prev, 8))
			if !slices.Equal(x, want) {
				r.Errorf("SendrecvView of %d elements between layouts %d of the same memory: the elements are not those of rank %d", n, k, prev)
			}
		}
	}
}

// longViews sends messages of 2 MiB between views of long blocks, of blocks anywhere, of short blocks that do not
// begin the array, and slices. It probes some of them, and receives some in reverse order.
func longViews(r *Rank) {
	const n = 1 << 18
	c := r.Comm
	next, prev := r.ring()
	var lens, displs []int // every second block, backwards
	for left, at := n, 2*n; left > 0; {
		length := min(left, 1+len(lens)%700)
		left -= length
		at -= length
		lens, displs = append(lens, length), append(displs, 2*at-n/2)
		if len(lens)%5 == 0 {
			lens, displs = append(lens, 0), append(displs, 0)
		}
	}
	layouts := []cohort.Layout{
		cohort.Subarray([]int{65, 64, 130}, []int{64, 32, 128}, []int{1, 30, 1}),
		cohort.Indexed(lens, displs),
		cohort.Subarray([]int{513, 1027}, []int{512, 512}, []int{1, 500}),
		cohort.Vector(n/2, 2, 7),
		cohort.Vector(1, n, n),
	}
	whole := func(l cohort.Layout) cohort.View[int64] { return cohort.ViewOf(make([]int64, 4*n), l) }
	content := make([]int64, n)
	fill := func(rank, tag int) []int64 {
		for i := range content {
			content[i] = int64(rank)<<40 | int64(tag)<<32 | int64(i)
		}
		return content
	}
	var sent []*cohort.Request
	for tag, l := range layouts {
		v := whole(l)
		r.OK(v.Unpack(fill(r.Rank, tag)))
		q := must(cohort.IsendView(c, v, next, tag))
		sent = append(sent, q)
	}
	got := make([]int64, n)
	for i := range layouts {
		tag := len(layouts) - 1 - i
		v := whole(layouts[(tag+2)%len(layouts)])
		var st cohort.Status
		var err error
		switch tag % 3 {
		case 0:
			st, err = c.Probe(prev, tag)
			if r.OK(err); cohort.Count[int64](st) != n {
				r.Errorf("a probe of message %d finds %d elements, want %d", tag, cohort.Count[int64](st), n)
			}
			st, err = cohort.RecvView(c, v, cohort.AnySource, tag)
		case 1:
			q := must(cohort.IrecvView(c, v, prev, tag))
			st, err = q.Wait()
		default:
			var all []int64
			all, st = must2(cohort.RecvAppend[int64](c, nil, prev, tag))
			r.OK(v.Unpack(all))
		}
		r.OK(err)
		r.OK(v.Pack(got))
		if want := fill(prev, tag); cohort.Count[int64](st) != n || st.Source != prev || !slices.Equal(got, want) {
			r.Errorf("message %d: status %+v; the elements are not those of rank %d", tag, st, prev)
		}
	}
	r.OK(cohort.WaitAll(sent...))
}

// viewDeadline receives a long view that no rank sends, and sends one that no rank receives. The memory of both
// can be used again, and no part of the messages arrives later.
func viewDeadline(r *Rank) {
	const n = 1 << 17
	next, prev := r.ring()
	matrix, other := newBuffer(int32s, 2*n), newBuffer(int32s, 2*n)
	v, image := cohort.ViewOf(matrix.data, cohort.Vector(n, 1, 2)), newBuffer(int32s, 2*n)
	c, begun, cancel := deadline(r.Comm)
	_, err := cohort.RecvView(c, v, prev, 7)
	timedOut(r, "RecvView", begun, err, "recvview")
	cancel()
	exchange := func() {
		r.OK(r.Comm.Barrier())
		for i := range other.data {
			other.data[i] = int32(r.Rank*4*n + i)
		}
		st := must(cohort.SendrecvView(r.Comm, cohort.ViewOf(other.data, cohort.Vector(n, 1, 2)), next, 7, cohort.ViewOf(other.data[1:], cohort.Vector(n, 1, 2)), prev, 7))
		if cohort.Count[int32](st) != n {
			r.Errorf("after a deadline: %d elements, want %d", cohort.Count[int32](st), n)
		}
		for i := range n {
			if got, want := other.data[2*i+1], int32(prev*4*n+2*i); got != want {
				r.Errorf("after a deadline, element %d is %d, want %d", i, got, want)
				break
			}
		}
		if i, ok := matrix.diff(image, nil); !ok {
			r.Errorf("element %d of a view that was not received into was written", i)
		}
	}
	exchange()
	if !r.Comm.Caps().CancelSend {
		return
	}
	c, begun, cancel = deadline(r.Comm)
	timedOut(r, "SendView", begun, cohort.SendView(c, v, next, 7), "sendview")
	cancel()
	r.OK(r.Comm.Barrier())
	if st, found, err := r.Comm.Iprobe(prev, 7); found || err != nil {
		r.Errorf("a view whose send timed out has arrived: %+v, %v", st, err)
	}
	r.OK(r.Comm.Barrier())
	exchange()
}

// viewAllocations checks that messages of views that are ready do not allocate.
func viewAllocations(r *Rank) {
	if racing || r.World.Caps().Library != "" {
		return // the race detector and libraries may allocate
	}
	next, prev := r.ring()
	for _, n := range []int{100, 33000} {
		a, b := make([]float64, 3*n), make([]float64, 3*n)
		column, row := cohort.Vector(n, 1, 3), cohort.Vector(1, n, n)
		from, to := cohort.ViewOf(a, column), cohort.ViewOf(b, column)
		lens, displs := make([]int, n), make([]int, n)
		for i := range n {
			lens[i], displs[i] = 1, 2*i
		}
		anywhere, whole := cohort.ViewOf(b, cohort.Indexed(lens, displs)), cohort.ViewOf(b, row)
		for _, views := range [][2]cohort.View[float64]{{from, to}, {anywhere, from}, {whole, from}} {
			noAllocations(r, "SendrecvView", func() error { // errorOf would allocate
				_, err := cohort.SendrecvView(r.Comm, views[0], next, 1, views[1], prev, 1)
				return err
			})
			noAllocations(r, "SendView and RecvView", func() error {
				if r.Rank == 0 {
					if err := cohort.SendView(r.Comm, views[0], next, 1); err != nil {
						return err
					}
				}
				_, err := cohort.RecvView(r.Comm, views[1], prev, 1)
				if err == nil && r.Rank > 0 {
					err = cohort.SendView(r.Comm, views[0], next, 1)
				}
				return err
			})
		}
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

// contiguousAlltoall exchanges views that need not be packed: blocks in reverse order with gaps between them, some of
// them empty, of two arrays or of one, or of an array for each rank.
func contiguousAlltoall(r *Rank) {
	const n, room = 1000, 3000
	count := func(from, to int) int { return n * ((from + to) % 3) / 2 }
	elem := func(from, to, i int) int64 { return int64(from)<<40 | int64(to)<<20 | int64(i) }
	for _, arrays := range []int{1, 2, 2 * r.Size} {
		memory, want := make([][]int64, arrays), make([][]int64, arrays)
		for i := range memory {
			memory[i], want[i] = make([]int64, r.Size*room), make([]int64, r.Size*room)
		}
		send, recv := make([]cohort.View[int64], r.Size), make([]cohort.View[int64], r.Size)
		for j := range r.Size {
			at := (r.Size - 1 - j) * room
			sent, got := count(r.Rank, j), count(j, r.Rank)
			a, b := 2*j%arrays, (2*j+1)%arrays
			for i := range sent {
				memory[a][at+i], want[a][at+i] = elem(r.Rank, j, i), elem(r.Rank, j, i)
			}
			for i := range got {
				want[b][at+n+i] = elem(j, r.Rank, i)
			}
			send[j] = cohort.ViewOf(memory[a][at:], cohort.Vector(1, sent, sent))
			recv[j] = cohort.ViewOf(memory[b], cohort.Subarray([]int{r.Size * room}, []int{got}, []int{at + n}))
			if arrays > 2 && j == 0 { // a layout that is packed all the same
				recv[j] = cohort.ViewOf(memory[b], cohort.Indexed([]int{got}, []int{at + n}))
			}
		}
		r.OK(cohort.AlltoallView(r.Comm, send, recv))
		for i := range memory {
			if !slices.Equal(memory[i], want[i]) {
				r.Errorf("AlltoallView of contiguous views: array %d of %d is wrong", i, arrays)
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
			r.Is(err, v.want, "%s of %s", name, what).opError().names(name)
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
	same := make([]int32, 9)
	for _, l := range []cohort.Layout{cohort.Vector(4, 1, 2), cohort.Vector(1, 9, 9)} {
		views := filled(r.Size, func(i int) cohort.View[int32] { return cohort.ViewOf(same, l) })
		if err := cohort.AlltoallView(c, views, views); r.Size > 1 {
			r.Is(err, cohort.ErrBuffer, "AlltoallView into views that share elements")
		}
	}
	r.OK(c.Barrier())
	if st, found, err := c.Iprobe(cohort.AnySource, cohort.AnyTag); found || err != nil {
		r.Errorf("a call with a wrong layout has sent a message: %+v, %v", st, err)
	}
	// The same mistake on one rank only.
	d := must(c.Dup())
	views := make([]cohort.View[int32], r.Size)
	if r.Rank == 0 {
		views = bad
	}
	err := cohort.AlltoallView(d, make([]cohort.View[int32], r.Size), views)
	if r.Rank == 0 {
		r.Is(err, cohort.ErrBuffer, "AlltoallView with a wrong view, which this rank passed")
	} else {
		r.mismatch(d, err, "AlltoallView with a wrong view on rank 0").names("rank 0", "Alltoallv")
	}
	r.OK(d.Close())
}
