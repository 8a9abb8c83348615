package cohorttest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Messages from and into elements that are not contiguous.

// viewMessages sends messages between views of single elements in both orders and slices, and messages of 2 MiB between views of long blocks, of blocks anywhere, of short blocks that do not
// begin the array, and slices.
func viewMessages(r *Rank) {
	for _, n := range []int{2, 100000} {
		odd, back := make([]int, n), make([]int, n)
		for i := range n {
			odd[i], back[i] = 1, 2*(n-1-i)
		}
		between(r, n, 2*n, cohort.Vector(n, 1, 2), cohort.Vector(1, n, n), cohort.Indexed(odd, back))
	}
	k := r.pick(1, 2)
	n := k * k << 16
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
	between(r, n, 4*n,
		cohort.Subarray([]int{65, 32 * k, 65 * k}, []int{64, 16 * k, 64 * k}, []int{1, 15 * k, 1}),
		cohort.Indexed(lens, displs),
		cohort.Subarray([]int{256*k + 1, 513*k + 1}, []int{256 * k, 256 * k}, []int{1, 250 * k}),
		cohort.Vector(n/2, 2, 7),
		cohort.Vector(1, n, n))
}

// between exchanges messages of n elements between layouts of an array of the given size: all of them at once, from one
// array to others, and then one after the other, from an array to itself.
func between(r *Rank, n, size int, layouts ...cohort.Layout) {
	array := func(rank int) []int64 {
		return filled(size, func(i int) int64 { return int64(rank)<<40 + int64(i) })
	}
	mine, previous := array(r.Rank), array(r.prev)
	messages := filled(len(layouts), func(k int) []int64 {
		message := make([]int64, n)
		r.OK(cohort.ViewOf(previous, layouts[k]).Pack(message))
		return message
	})
	expected := func(from int, to cohort.Layout, before []int64) []int64 {
		r.OK(cohort.ViewOf(before, to).Unpack(messages[from]))
		return before
	}
	other := func(k int) cohort.Layout { return layouts[(k+2)%len(layouts)] }
	sent := filled(len(layouts), func(k int) *cohort.Request {
		return must(cohort.IsendView(r.Comm, cohort.ViewOf(mine, layouts[k]), r.next, k))
	})
	for i := range layouts {
		k, got := len(layouts)-1-i, make([]int64, size)
		status[int64](r, must(cohort.RecvView(r.Comm, cohort.ViewOf(got, other(k)), r.prev, k)), r.prev, k, n, "layout %d", k)
		equalSlices(r, got, expected(k, other(k), make([]int64, size)), "RecvView of %d elements with layout %d from rank %d", n, k, r.prev)
	}
	r.OK(cohort.WaitAll(sent...))
	for k, l := range layouts {
		for _, to := range []cohort.Layout{l, other(k)} {
			x := slices.Clone(mine)
			must(cohort.SendrecvView(r.Comm, cohort.ViewOf(x, l), r.next, 8, cohort.ViewOf(x, to), r.prev, 8))
			equalSlices(r, x, expected(k, to, slices.Clone(mine)), "SendrecvView of %d elements from layout %d of the same memory, from rank %d", n, k, r.prev)
		}
	}
}

// viewAllocations checks that messages of views that are ready do not allocate.
func viewAllocations(r *Rank) {
	if racing || r.World.Caps().Library != "" {
		return // the race detector and libraries may allocate
	}
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
				_, err := cohort.SendrecvView(r.Comm, views[0], r.next, 1, views[1], r.prev, 1)
				return err
			})
			noAllocations(r, "SendView and RecvView", func() error {
				if r.Rank == 0 {
					if err := cohort.SendView(r.Comm, views[0], r.next, 1); err != nil {
						return err
					}
				}
				_, err := cohort.RecvView(r.Comm, views[1], r.prev, 1)
				if err == nil && r.Rank > 0 {
					err = cohort.SendView(r.Comm, views[0], r.next, 1)
				}
				return err
			})
		}
	}
}

// alltoallViews exchanges views. view returns that of the block of a given length which this rank sends to another, or
// receives from it. Nothing else is written.
func alltoallViews(r *Rank, what string, count func(from, to int) int, view func(sends bool, other, n int) cohort.View[int64]) {
	block := func(from, to int) []int64 {
		return filled(count(from, to), func(i int) int64 { return int64(1+from)<<40 | int64(to)<<20 | int64(i) })
	}
	send := filled(r.Size, func(to int) cohort.View[int64] { return view(true, to, count(r.Rank, to)) })
	recv := filled(r.Size, func(from int) cohort.View[int64] { return view(false, from, count(from, r.Rank)) })
	for to, v := range send {
		r.OK(v.Unpack(block(r.Rank, to)))
	}
	r.OK(cohort.AlltoallView(r.Comm, send, recv))
	for i, v := range append(recv, send...) {
		want := block(i, r.Rank) // of a view that is only in recv
		if i >= r.Size {
			want = block(r.Rank, i-r.Size)
		}
		got := make([]int64, len(want))
		r.OK(v.Pack(got))
		equalSlices(r, got, want, "AlltoallView of %s: block %d", what, i)
	}
}

// viewAlltoall transposes a matrix of which every rank has some rows: the ranks send blocks of columns, and
// store each block as rows of the transposed matrix.
func viewAlltoall(r *Rank) {
	for _, rows := range []int{0, 1, 2, 70} { // of each rank
		n := rows * r.Size
		mine, turned := make([]int64, rows*n), make([]int64, rows*n)
		alltoallViews(r, fmt.Sprintf("%d rows", rows), func(_, _ int) int { return rows * rows }, func(sends bool, other, _ int) cohort.View[int64] {
			if !sends {
				return cohort.ViewOf(turned, cohort.Subarray([]int{max(rows, 1), max(n, 1)}, []int{rows, rows}, []int{0, other * rows}))
			}
			var lens, displs []int // of a block of columns, column by column
			for j := range rows {
				for i := range rows {
					lens, displs = append(lens, 1), append(displs, i*n+other*rows+j)
				}
			}
			return cohort.ViewOf(mine, cohort.Indexed(lens, displs))
		})
	}
}

// contiguousAlltoall exchanges views that need not be packed: blocks in reverse order with gaps between them, some of
// them empty, of two arrays or of one, or of an array for each rank.
func contiguousAlltoall(r *Rank) {
	const n, room = 1000, 3000
	for _, arrays := range []int{1, 2, 2 * r.Size} {
		memory := filled(arrays, func(int) []int64 { return make([]int64, r.Size*room) })
		total := 0
		count := func(from, to int) int { return n * ((from + to) % 3) / 2 }
		alltoallViews(r, "contiguous views", count, func(sends bool, other, m int) cohort.View[int64] {
			total += m
			at := (r.Size - 1 - other) * room
			if sends {
				return cohort.ViewOf(memory[2*other%arrays][at:], cohort.Vector(1, m, m))
			}
			all := memory[(2*other+1)%arrays]
			if arrays > 2 && other == 0 { // a layout that is packed all the same
				return cohort.ViewOf(all, cohort.Indexed([]int{m}, []int{at + n}))
			}
			return cohort.ViewOf(all, cohort.Subarray([]int{r.Size * room}, []int{m}, []int{at + n}))
		})
		for _, x := range slices.Concat(memory...) {
			if x != 0 {
				total--
			}
		}
		equal(r, total, 0, "AlltoallView of contiguous views: elements that were not written, or written outside of the views")
	}
	// The views of send are one, so the same message goes to all. The rank's own comes back to the same memory.
	mine, all := numbered(long, r.Rank)
	send, recv, memory := slices.Repeat([]cohort.View[int64]{mine}, r.Size), make([]cohort.View[int64], r.Size), make([][]int64, r.Size)
	for j := range recv {
		recv[j], memory[j] = strided[int64](long)
	}
	recv[r.Rank] = mine
	r.OK(cohort.AlltoallView(r.Comm, send, recv))
	memory[r.Rank] = all
	for j, got := range memory {
		for i, x := range got {
			if want := int64(j)<<32 + int64(i); x != want && (i%2 == 0 || j == r.Rank) {
				r.OK(fmt.Errorf("AlltoallView of one view for all: element %d from rank %d is %#x, want %#x", i, j, x, want))
			}
		}
	}
}

// wrongViews passes wrong layouts. Nothing is sent.
func wrongViews(r *Rank) {
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
		_, isend := cohort.IsendView(r.Comm, v.v, r.next, 1)
		_, recv := cohort.RecvView(r.Comm, v.v, r.prev, 1)
		_, irecv := cohort.IrecvView(r.Comm, v.v, r.prev, 1)
		_, both := cohort.SendrecvView(r.Comm, good, r.next, 1, v.v, r.prev, 1)
		for name, err := range map[string]error{
			"sendview": cohort.SendView(r.Comm, v.v, r.next, 1), "isendview": isend, "recvview": recv, "irecvview": irecv, "sendrecv": both,
		} {
			r.Is(err, v.want, "%s of %s", name, what).opError().names(name)
		}
		if err := errors.Join(v.v.Pack(make([]int32, 9)), v.v.Unpack(nil)); err == nil {
			r.Errorf("Pack and Unpack of %s return no error", what)
		}
	}
	r.Is(cohort.SendView(r.Comm, cohort.ViewOf(make([]*int, 4), cohort.Vector(2, 1, 2)), r.next, 1), cohort.ErrType, "SendView of pointers")
	r.Is(cohort.SendView(r.Comm, good, r.Size, 1), cohort.ErrRank, "SendView to a rank that does not exist")
	r.Is(cohort.AlltoallView(r.Comm, make([]cohort.View[int32], r.Size+1), make([]cohort.View[int32], r.Size)), cohort.ErrCount, "AlltoallView of too many views")
	bad := make([]cohort.View[int32], r.Size)
	bad[r.Size-1] = cohort.ViewOf([]int32{}, cohort.Vector(1, 1, 1))
	r.Is(cohort.AlltoallView(r.Comm, make([]cohort.View[int32], r.Size), bad), cohort.ErrBuffer, "AlltoallView into a view outside its slice")
	same := make([]int32, 9)
	for _, l := range []cohort.Layout{cohort.Vector(4, 1, 2), cohort.Vector(1, 9, 9)} {
		views := filled(r.Size, func(i int) cohort.View[int32] { return cohort.ViewOf(same, l) })
		if err := cohort.AlltoallView(r.Comm, views, views); r.Size > 1 {
			r.Is(err, cohort.ErrBuffer, "AlltoallView into views that share elements")
		}
	}
	r.noMessage("a message of a call with a wrong layout")
	// The same mistake on one rank only.
	d := r.dup()
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
}
