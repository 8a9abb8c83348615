package cohorttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/file"
)

// Package file on every backend.

func fileScenarios() []scenario {
	last := func(rank, size int) bool { return rank == size-1 }
	return []scenario{
		{name: "files/rows", turns: true, body: fileRows},
		{name: "files/blocks", body: fileBlocks},
		{name: "files/shared", body: fileShared},
		{name: "files/end", body: fileEnd},
		{name: "files/append", body: fileAppend},
		{name: "files/lengths", body: fileLengths},
		{name: "files/npy", body: fileNpy},
		{name: "files/open", body: fileOpen},
		{name: "files/wrong", body: wrongFiles},
		{name: "files/one-wrong", sizes: atLeast(2), body: oneWrongFile},
		{name: "files/mismatch", sizes: atLeast(2), body: mismatchedFiles},
		{name: "files/busy", sizes: atLeast(2), body: fileBusy},
		{name: "files/full", body: fullFile},
		{name: "files/deadline", sizes: atLeast(2), body: fileDeadline},
		{name: "files/closed", body: closedFile},
		{name: "faults/dead-in-file", sizes: atLeast(2), alone: true, lost: last, body: deadInFile},
	}
}

const (
	update = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	hole   = 0xEE
)

// path is the name of a file for this scenario, the same on all ranks.
func (r *Rank) path() string { return filepath.Join(r.job.Dir, filepath.Base(r.scenario)+".bin") }

// create opens a new file.
func (r *Rank) create() *file.File {
	f := must(file.Open(r.Comm, r.path(), update, 0o600))
	return f
}

// fill makes rank 0 fill the first n bytes of a file with holes.
func (r *Rank) fill(f *file.File, n int) {
	if r.Rank == 0 {
		must(f.WriteAt(bytes.Repeat([]byte{hole}, n), 0))
	}
	r.OK(r.Comm.Barrier())
}

// content checks the bytes of a file, without package file.
func (r *Rank) content(what string, want []byte) {
	if got := must(os.ReadFile(r.path())); !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		r.Errorf("%s: the file has %d bytes, want %d, and differs at %d", what, len(got), len(want), i)
	}
	r.OK(r.Comm.Barrier()) // before anybody goes on
}

// pattern returns n bytes of an array that is easy to compute, from byte at on.
func pattern(at, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		x := uint32(at+i) * 2654435761
		b[i] = byte(x >> 24)
	}
	return b
}

// fileRows deals the rows of a table to the ranks in turn. Each writes its rows, but for the last bytes of each row,
// and they read blocks of the file together; and the other way round.
func fileRows(r *Rank) {
	const off = 5
	type table struct{ rows, row, part int } // rows of each rank, bytes of a row, and bytes that are written
	for _, t := range []table{{0, 8, 8}, {1, 3, 3}, {1, 3, 2}, {500, 8, 8}, {500, 12, 7}, {100, 12000, 12000}, {3, 100000, 90000}, {1200, 700, 700}} {
		what := fmt.Sprintf("%+v", t)
		n := off + t.rows*t.row*r.Size
		want := slices.Repeat([]byte{hole}, n)
		mine := make([]byte, 0, t.rows*t.part)
		for i := range t.rows * r.Size {
			row := pattern(off+i*t.row, t.part)
			copy(want[off+i*t.row:], row)
			if i%r.Size == r.Rank {
				mine = append(mine, row...)
			}
		}
		l := cohort.Vector(t.rows, t.part, t.row*r.Size)
		at := int64(off + r.Rank*t.row)
		f := r.create()
		r.fill(f, n)
		r.OK(file.WriteView(f, mine, at, l))
		r.content("rows "+what, want)

		lo, hi := n*r.Rank/r.Size, n*(r.Rank+1)/r.Size
		got := make([]byte, hi-lo)
		if m, err := f.ReadAtAll(got, int64(lo)); err != nil || m != len(got) || !bytes.Equal(got, want[lo:hi]) {
			r.Errorf("%s: ReadAtAll of bytes %d to %d: %d, %v", what, lo, hi, m, err)
		}
		r.OK(f.SetSize(0))
		if m := must(f.WriteAtAll(want[lo:hi], int64(lo))); m != hi-lo {
			r.Errorf("%s: WriteAtAll returns %d, want %d", what, m, hi-lo)
		}
		r.content("blocks "+what, want)
		rows := make([]byte, len(mine))
		r.OK(file.ReadView(f, rows, at, l))
		if !bytes.Equal(rows, mine) {
			r.Errorf("%s: ReadView of rows gives others", what)
		}
		r.OK(f.Close())
	}
}

// fileBlocks deals the blocks of a matrix of structs to the ranks, which read them as columns.
func fileBlocks(r *Rank) {
	const rows, cols = 30, 20 // of each rank's block
	sizes := []int{rows, cols * r.Size}
	elem := func(i, j int) packed { return packeds.elem(i*sizes[1] + j) }
	block := make([]packed, 0, rows*cols)
	for i := range rows {
		for j := range cols {
			block = append(block, elem(i, r.Rank*cols+j))
		}
	}
	f := r.create()
	r.OK(file.WriteView(f, block, 0, cohort.Subarray(sizes, []int{rows, cols}, []int{0, r.Rank * cols})))
	var lens, displs []int // of all columns, the last one first: the layout is not ascending
	for j := sizes[1] - 1; j >= 0; j-- {
		for i := range rows {
			lens, displs = append(lens, 1), append(displs, i*sizes[1]+j)
		}
	}
	got := make([]packed, rows*sizes[1])
	l := cohort.Indexed(lens, displs)
	check := func(what string) {
		r.OK(file.ReadView(f, got, 0, l))
		same(r, got, func(k int) packed { return elem(k%rows, sizes[1]-1-k/rows) }, "%s", what)
		clear(got)
	}
	check("columns of blocks")
	r.OK(file.ReadView(f, got, 0, l))
	r.OK(r.Comm.Barrier())
	r.OK(f.SetSize(0))
	if r.Rank > 0 { // the others have nothing to write
		r.OK(file.WriteView(f, []packed{}, 0, cohort.Layout{}))
	} else {
		r.OK(file.WriteView(f, got, 0, l))
	}
	check("columns of columns")
	r.OK(f.Close())
}

// fileShared has all ranks read the same bytes, and write the same.
func fileShared(r *Rank) {
	f := r.create()
	want := pattern(0, 200001)
	l := cohort.Vector(len(want)/3, 1, 3)
	for range 2 {
		must(f.WriteAtAll(want, 0))
		r.content("the same bytes from all ranks", want)
		got := make([]byte, l.Len())
		r.OK(file.ReadView(f, got, 1, l))
		same(r, got, func(i int) byte { return want[1+3*i] }, "every third byte")
	}
	if n, err := f.ReadAt(want[:10], 7); n != 10 || err != nil || !bytes.Equal(want[:10], pattern(7, 10)) {
		r.Errorf("ReadAt: %d, %v, %v", n, err, want[:10])
	}
	r.OK(r.Comm.Barrier())
	must(f.WriteAt([]byte{byte(r.Rank)}, int64(r.Rank)))
	r.OK(r.Comm.Barrier())
	all := make([]byte, r.Size)
	must(f.ReadAt(all, 0))
	same(r, all, func(i int) byte { return byte(i) }, "WriteAt of all ranks")
	r.OK(f.Close())
}

// fileEnd reads past the end of a file.
func fileEnd(r *Rank) {
	for _, row := range []int{1, 3000} { // elements of 2 bytes
		f := r.create()
		const rows = 4
		size := (rows*r.Size*row)*2 - 2*row // without the last row of the last rank
		if r.Rank == 0 {
			must(f.WriteAt(pattern(0, size), 0))
		}
		r.OK(r.Comm.Barrier())
		got := slices.Repeat([]uint16{0x9999}, rows*row)
		err := file.ReadView(f, got, int64(2*row*r.Rank), cohort.Vector(rows, row, row*r.Size))
		there := rows
		if r.Rank < r.Size-1 {
			r.OK(err)
		} else {
			there--
			r.Is(err, io.ErrUnexpectedEOF, "ReadView past the end").names("readview", r.path(), fmt.Sprintf("bytes %d to %d", size, size+2*row-1))
		}
		raw := file.Bytes(got)
		for i := range rows {
			part := raw[2*row*i:][:2*row]
			want := bytes.Repeat([]byte{0x99}, 2*row)
			if i < there {
				want = pattern(2*row*(i*r.Size+r.Rank), 2*row)
			}
			if !bytes.Equal(part, want) {
				r.Errorf("rows of %d: row %d is wrong", row, i)
			}
		}
		for off, want := range map[int]int{0: size, 1: size - 1, size - 1: 1, size: 0, size + 1<<20: 0} {
			buf := make([]byte, size+1)
			n, err := f.ReadAtAll(buf, int64(off))
			if n != want || err != io.EOF || !bytes.Equal(buf[:n], pattern(off, n)) {
				r.Errorf("ReadAtAll from %d to the end of %d bytes: %d, %v; want %d, %v", off, size, n, err, want, io.EOF)
			}
		}
		if n, err := f.ReadAt(make([]byte, 9), int64(size)); n != 0 || err != io.EOF {
			r.Errorf("ReadAt at the end: %d, %v", n, err)
		}
		r.OK(f.Close())
	}
}

// fileAppend appends different lengths in rank order, none on some ranks.
func fileAppend(r *Rank) {
	f := r.create()
	var want []byte
	for _, unit := range []int{1, 0, 1000, 200000} {
		var mine int
		for rank := range r.Size {
			if rank == r.Rank {
				mine = len(want)
			}
			want = append(want, pattern(len(want), unit*(rank%3))...)
		}
		if off := must(f.AppendAll(pattern(mine, unit*(r.Rank%3)))); off != int64(mine) {
			r.Errorf("AppendAll of %d: offset %d, want %d", unit*(r.Rank%3), off, mine)
		}
		r.content("AppendAll", want)
	}
	r.OK(f.Close())
}

// fileLengths changes the length of a file.
func fileLengths(r *Rank) {
	f := r.create()
	is := func(what string, want int64) {
		if n, err := f.Size(); n != want || err != nil {
			r.Errorf("Size after %s: %d, %v; want %d", what, n, err, want)
		}
		r.OK(r.Comm.Barrier())
	}
	is("Open", 0)
	r.OK(f.SetSize(12345))
	is("SetSize", 12345)
	err := f.Preallocate(30000)
	switch {
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, cohort.ErrNotSupported): // the file system or the system
	default:
		r.OK(err)
		is("Preallocate", 30000)
		r.OK(f.Preallocate(100))
		is("Preallocate of less", 30000)
	}
	r.OK(f.SetSize(3))
	is("SetSize to less", 3)
	r.content("SetSize", make([]byte, 3))
	r.OK(f.Preallocate(0))
	r.OK(f.Sync())
	r.OK(f.Close())
}

// fileNpy writes a distributed array of three dimensions and reads parts that are distributed otherwise.
func fileNpy(r *Rank) {
	sizes := []int{3, 2 * r.Size, 5}
	elem := func(i, j, k int) complex64 { return complex(float32(i*100+j), float32(k)) }
	mine := make([]complex64, 0, 30)
	for i := range 3 {
		for j := range 2 {
			for k := range 5 {
				mine = append(mine, elem(i, 2*r.Rank+j, k))
			}
		}
	}
	f := r.create()
	r.OK(file.WriteNpy(f, mine, sizes, []int{3, 2, 5}, []int{0, 2 * r.Rank, 0}))
	if a := must(file.ReadNpyHeader(f)); a.Type != "<c8" && a.Type != ">c8" || !slices.Equal(a.Shape, sizes) || a.Fortran {
		r.Errorf("the header is %+v, want complex64 of %v", a, sizes)
	}
	all := make([]complex64, 3*sizes[1])
	k := r.Rank % 5
	r.OK(file.ReadNpy(f, all, []int{3, sizes[1], 1}, []int{0, 0, k}))
	same(r, all, func(at int) complex64 { return elem(at/sizes[1], at%sizes[1], k) }, "ReadNpy")
	r.OK(r.Comm.Barrier()) // all have read
	for _, empty := range [][]int{{0}, {0, 3}, {2, 0, 4}} {
		starts := make([]int, len(empty))
		r.OK(file.WriteNpy(f, []int16{}, empty, empty, starts))
		if a, err := file.ReadNpyHeader(f); err != nil || !slices.Equal(a.Shape, empty) {
			r.Errorf("the header of an array of %v is %+v, %v", empty, a, err)
		}
		r.OK(file.ReadNpy(f, []int16{}, empty, starts))
	}
	r.OK(file.WriteNpy(f, mine, sizes, []int{3, 2, 5}, []int{0, 2 * r.Rank, 0}))
	r.Is(file.ReadNpy(f, make([]float64, 5), []int{1, 1, 5}, []int{0, 0, 0}), cohort.ErrType, "ReadNpy of another type").names("readnpy", "c8", "f8", "float64")
	r.Is(file.ReadNpy(f, mine, []int{4, 2, 5}, []int{0, 0, 0}), cohort.ErrCount, "ReadNpy of a part that is not inside")
	r.Is(file.WriteNpy(f, []struct{ X int }{}, sizes, sizes, sizes), cohort.ErrType, "WriteNpy of structs")
	r.OK(r.Comm.Barrier())
	r.OK(f.SetSize(20))
	r.Is(errorOf(file.ReadNpyHeader(f)), cohort.ErrType, "a header that is cut off")
	r.OK(f.Close())
}
