package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/file"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

const update = os.O_RDWR | os.O_CREATE | os.O_TRUNC

type packed struct {
	A float64
	B int32
	C [2]int16
}

// rank is one rank of a job of goroutines.
type rank struct {
	*testing.T
	Comm       *cohort.Comm
	Rank, Size int
	dir        string
}

// onRanks runs body on jobs of 1 to 5 ranks, or from another number on. The communicator is usable afterwards.
func onRanks(t *testing.T, least int, body func(r *rank)) {
	t.Helper()
	for n := least; n <= 5; n += n/3 + 1 {
		dir := t.TempDir()
		err := cohort.Run(t.Context(), n, must.Return(func(c *cohort.Comm) error {
			body(&rank{t, c, c.Rank(), n, dir})
			return c.Barrier()
		}))
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

func errorOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

// is checks that err wraps want and contains all words.
func (r *rank) is(err, want error, what string, words ...string) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Errorf("rank %d, %s: got error %v, want %v", r.Rank, what, err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(w)) {
			r.Errorf("rank %d, %s: the error does not name %q: %v", r.Rank, what, w, err)
		}
	}
}

// each checks the elements of a slice.
func each[T comparable](r *rank, got []T, want func(i int) T, what string) {
	for i, x := range got {
		if w := want(i); x != w {
			r.Errorf("%s: element %d is %v, want %v", what, i, x, w)
			return
		}
	}
}

// path is the name of the job's file.
func (r *rank) path() string { return filepath.Join(r.dir, "file") }

// create opens a new file.
func (r *rank) create() *file.File { return must.Get(file.Open(r.Comm, r.path(), update, 0o600)) }

// content checks the bytes of a file, without package file.
func (r *rank) content(what string, want []byte) {
	if got := must.Get(os.ReadFile(r.path())); !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		r.Errorf("%s: the file has %d bytes, want %d, and differs at %d", what, len(got), len(want), i)
	}
	must.OK(r.Comm.Barrier()) // before anybody goes on
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

// TestFileBecomesLongerAndShorter changes the length of a file.
func TestFileBecomesLongerAndShorter(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		f := r.create()
		is := func(what string, want int64) {
			if n, err := f.Size(); n != want || err != nil {
				r.Errorf("Size after %s: %d, %v; want %d", what, n, err, want)
			}
			must.OK(r.Comm.Barrier())
		}
		is("Open", 0)
		must.OK(f.SetSize(12345))
		is("SetSize", 12345)
		err := f.Preallocate(30000)
		switch {
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, cohort.ErrNotSupported): // the file system or the system
		default:
			must.OK(err)
			is("Preallocate", 30000)
			must.OK(f.Preallocate(100))
			is("Preallocate of less", 30000)
		}
		must.OK(f.SetSize(3))
		is("SetSize to less", 3)
		r.content("SetSize", make([]byte, 3))
		must.OK(f.Preallocate(0))
		must.OK(f.Sync())
		must.OK(f.Close())
	})
}

// TestArraysOfManyRanks writes a distributed array of three dimensions and reads parts that are distributed otherwise.
func TestArraysOfManyRanks(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
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
		must.OK(file.WriteNpy(f, mine, sizes, []int{3, 2, 5}, []int{0, 2 * r.Rank, 0}))
		if a := must.Get(file.ReadNpyHeader(f)); a.Type != "<c8" && a.Type != ">c8" || !slices.Equal(a.Shape, sizes) || a.Fortran {
			r.Errorf("the header is %+v, want complex64 of %v", a, sizes)
		}
		all := make([]complex64, 3*sizes[1])
		k := r.Rank % 5
		must.OK(file.ReadNpy(f, all, []int{3, sizes[1], 1}, []int{0, 0, k}))
		each(r, all, func(at int) complex64 { return elem(at/sizes[1], at%sizes[1], k) }, "ReadNpy")
		must.OK(r.Comm.Barrier()) // all have read
		for _, empty := range [][]int{{0}, {0, 3}, {2, 0, 4}} {
			starts := make([]int, len(empty))
			must.OK(file.WriteNpy(f, []int16{}, empty, empty, starts))
			if a, err := file.ReadNpyHeader(f); err != nil || !slices.Equal(a.Shape, empty) {
				r.Errorf("the header of an array of %v is %+v, %v", empty, a, err)
			}
			must.OK(file.ReadNpy(f, []int16{}, empty, starts))
		}
		must.OK(file.WriteNpy(f, mine, sizes, []int{3, 2, 5}, []int{0, 2 * r.Rank, 0}))
		r.is(file.ReadNpy(f, make([]float64, 5), []int{1, 1, 5}, []int{0, 0, 0}), cohort.ErrType, "ReadNpy of another type", "readnpy", "c8", "f8", "float64")
		r.is(file.ReadNpy(f, mine, []int{4, 2, 5}, []int{0, 0, 0}), cohort.ErrCount, "ReadNpy of a part that is not inside")
		r.is(file.WriteNpy(f, []struct{ X int }{}, sizes, sizes, sizes), cohort.ErrType, "WriteNpy of structs")
		must.OK(r.Comm.Barrier())
		must.OK(f.SetSize(20))
		r.is(errorOf(file.ReadNpyHeader(f)), cohort.ErrType, "a header that is cut off")
		must.OK(f.Close())
	})
}

// TestBlocksOfAMatrixAreReadAsColumns deals the blocks of a matrix of structs to the ranks, which read them as columns.
func TestBlocksOfAMatrixAreReadAsColumns(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		const rows, cols = 30, 20 // of each rank's block
		sizes := []int{rows, cols * r.Size}
		elem := func(i, j int) packed {
			return packed{float64(i*sizes[1] + j), int32(i) << 8, [2]int16{int16(j), int16(-i)}}
		}
		block := make([]packed, 0, rows*cols)
		for i := range rows {
			for j := range cols {
				block = append(block, elem(i, r.Rank*cols+j))
			}
		}
		f := r.create()
		must.OK(file.WriteView(f, block, 0, cohort.Subarray(sizes, []int{rows, cols}, []int{0, r.Rank * cols})))
		var lens, displs []int // of all columns, the last one first: the layout is not ascending
		for j := sizes[1] - 1; j >= 0; j-- {
			for i := range rows {
				lens, displs = append(lens, 1), append(displs, i*sizes[1]+j)
			}
		}
		got := make([]packed, rows*sizes[1])
		l := cohort.Indexed(lens, displs)
		check := func(what string) {
			must.OK(file.ReadView(f, got, 0, l))
			each(r, got, func(k int) packed { return elem(k%rows, sizes[1]-1-k/rows) }, what)
			clear(got)
		}
		check("columns of blocks")
		must.OK(file.ReadView(f, got, 0, l))
		must.OK(r.Comm.Barrier())
		must.OK(f.SetSize(0))
		if r.Rank > 0 { // the others have nothing to write
			must.OK(file.WriteView(f, []packed{}, 0, cohort.Layout{}))
		} else {
			must.OK(file.WriteView(f, got, 0, l))
		}
		check("columns of columns")
	})
}

// TestAllRanksReadAndWriteTheSameBytes has all ranks read the same bytes, and write the same.
func TestAllRanksReadAndWriteTheSameBytes(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		f := r.create()
		want := pattern(0, 200001)
		l := cohort.Vector(len(want)/3, 1, 3)
		for range 2 {
			must.Get(f.WriteAtAll(want, 0))
			r.content("the same bytes from all ranks", want)
			got := make([]byte, l.Len())
			must.OK(file.ReadView(f, got, 1, l))
			each(r, got, func(i int) byte { return want[1+3*i] }, "every third byte")
		}
		if n, err := f.ReadAt(want[:10], 7); n != 10 || err != nil || !bytes.Equal(want[:10], pattern(7, 10)) {
			r.Errorf("ReadAt: %d, %v, %v", n, err, want[:10])
		}
		must.OK(r.Comm.Barrier())
		must.Get(f.WriteAt([]byte{byte(r.Rank)}, int64(r.Rank)))
		must.OK(r.Comm.Barrier())
		all := make([]byte, r.Size)
		must.Get(f.ReadAt(all, 0))
		each(r, all, func(i int) byte { return byte(i) }, "WriteAt of all ranks")
	})
}

// TestReadsPastTheEnd reads past the end of a file.
func TestReadsPastTheEnd(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		for _, row := range []int{1, 3000} { // elements of 2 bytes
			f := r.create()
			const rows = 4
			size := (rows*r.Size*row)*2 - 2*row // without the last row of the last rank
			if r.Rank == 0 {
				must.Get(f.WriteAt(pattern(0, size), 0))
			}
			must.OK(r.Comm.Barrier())
			got := slices.Repeat([]uint16{0x9999}, rows*row)
			err := file.ReadView(f, got, int64(2*row*r.Rank), cohort.Vector(rows, row, row*r.Size))
			there := rows
			if r.Rank < r.Size-1 {
				must.OK(err)
			} else {
				there--
				r.is(err, io.ErrUnexpectedEOF, "ReadView past the end", "readview", r.path(), fmt.Sprintf("bytes %d to %d", size, size+2*row-1))
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
		}
	})
}

// TestAppendsAreInRankOrder appends different lengths in rank order, none on some ranks.
func TestAppendsAreInRankOrder(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
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
			if off := must.Get(f.AppendAll(pattern(mine, unit*(r.Rank%3)))); off != int64(mine) {
				r.Errorf("AppendAll of %d: offset %d, want %d", unit*(r.Rank%3), off, mine)
			}
			r.content("AppendAll", want)
		}
	})
}
