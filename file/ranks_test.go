package file_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/file"
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
		err := cohort.Run(t.Context(), n, func(c *cohort.Comm) error {
			body(&rank{t, c, c.Rank(), n, dir})
			return c.Barrier()
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// must returns what a call returns. An error ends the job.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func errorOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

func (r *rank) ok(err error) {
	if err != nil {
		panic(err)
	}
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
func (r *rank) create() *file.File { return must(file.Open(r.Comm, r.path(), update, 0o600)) }

// content checks the bytes of a file, without package file.
func (r *rank) content(what string, want []byte) {
	if got := must(os.ReadFile(r.path())); !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		r.Errorf("%s: the file has %d bytes, want %d, and differs at %d", what, len(got), len(want), i)
	}
	r.ok(r.Comm.Barrier()) // before anybody goes on
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

// TestFilesThatCannotBeOpened opens missing files, on all ranks or on one, and files of the wrong kind. The errors are the same on all ranks.
func TestFilesThatCannotBeOpened(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		missing := filepath.Join(r.dir, "no-folder", "x")
		r.is(errorOf(file.Open(r.Comm, missing, update, 0o600)), fs.ErrNotExist, "Open in a folder that does not exist", "open", missing, "rank 0:")
		r.ok(r.create().Close())
		r.is(errorOf(file.Open(r.Comm, r.path(), update|os.O_EXCL, 0o600)), fs.ErrExist, "Open with O_EXCL of a file that exists")
		r.is(errorOf(file.Open(r.Comm, r.path(), os.O_WRONLY|os.O_APPEND, 0)), fs.ErrInvalid, "Open with O_APPEND")
		r.is(errorOf(file.Open(nil, r.path(), os.O_RDONLY, 0)), cohort.ErrComm, "Open without a communicator")
		r.ok(r.Comm.Barrier())
		if r.Size > 1 {
			r.is(errorOf(file.Open(r.Comm, fmt.Sprint(r.path(), r.Rank/(r.Size-1)), update, 0o600)), cohort.ErrMismatch, "Open of another file on the last rank", "different names")
		}
		// One that can only be read.
		f := must(file.Open(r.Comm, r.path(), os.O_RDONLY, 0))
		_, err := f.WriteAtAll([]byte{1, 2}, int64(2*r.Rank))
		r.is(err, syscall.EBADF, "WriteAtAll to a file opened to be read", "rank 0: bytes 0 to ", "writeatall", r.path(), fmt.Sprintf(" to %d: ", 2*r.Size-1))
		r.ok(f.Close())
	})
}

// TestWrongArguments passes wrong arguments on all ranks. Nothing is written, and the file stays usable.
func TestWrongArguments(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		f := r.create()
		p := make([]byte, 10)
		good := cohort.Vector(1, 10, 10)
		read := func(off int64) error { _, err := f.ReadAtAll(p, off); return err }
		write := func(off int64) error { _, err := f.WriteAtAll(p, off); return err }
		for what, c := range map[string]struct {
			op   string
			err  error
			want error
		}{
			"a negative offset to read":     {"readatall", read(-1), cohort.ErrCount},
			"a negative offset to write":    {"writeatall", write(-1), cohort.ErrCount},
			"the end of all offsets":        {"writeatall", write(1<<63 - 5), cohort.ErrCount},
			"a negative offset of a layout": {"writeview", file.WriteView(f, p, -1, good), cohort.ErrCount},
			"a short buffer":                {"writeview", file.WriteView(f, p[1:], 0, good), cohort.ErrCount},
			"a long buffer":                 {"readview", file.ReadView(f, append(p, 0), 0, good), cohort.ErrCount},
			"a wrong layout":                {"readview", file.ReadView(f, p, 0, cohort.Vector(2, 5, 4)), cohort.ErrCount},
			"a layout after all offsets":    {"writeview", file.WriteView(f, p, 1<<63-5, good), cohort.ErrCount},
			"pointers":                      {"writeview", file.WriteView(f, make([]*int, 10), 0, good), cohort.ErrType},
			"a negative size":               {"setsize", f.SetSize(-1), cohort.ErrCount},
			"a negative room":               {"preallocate", f.Preallocate(-1), cohort.ErrCount},
		} {
			r.is(c.err, c.want, fmt.Sprintf("%s", what), c.op, r.path(), fmt.Sprintf("rank %d", r.Rank))
		}
		_, err := f.ReadAt(p, -1)
		if err == nil {
			r.Errorf("ReadAt from a negative offset returns no error")
		}
		if _, err = f.WriteAt(p, -1); err == nil {
			r.Errorf("WriteAt to a negative offset returns no error")
		}
		r.content("after wrong calls", nil)
		r.ok(write(0))
		r.ok(f.Close())
		var none *file.File
		r.is(errorOf(none.WriteAtAll(p, 0)), fs.ErrInvalid, "WriteAtAll to a nil File")
		r.is(errorOf(none.ReadAt(p, 0)), fs.ErrInvalid, "ReadAt of a nil File")
		r.is(none.WithContext(t.Context()).Sync(), fs.ErrInvalid, "Sync of a nil File")
		r.ok(none.Close())
	})
}

// TestWrongArgumentsOnOneRank passes wrong arguments on one rank. The others get ErrMismatch that names it.
func TestWrongArgumentsOnOneRank(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		f := r.create()
		for _, bad := range []int{0, r.Size - 1} {
			off, n := int64(0), 10
			if r.Rank == bad {
				off, n = -1, 11
			}
			_, write := f.WriteAtAll(make([]byte, 10), off)
			view := file.WriteView(f, make([]byte, n), 0, cohort.Vector(1, 10, 10))
			size := f.SetSize(off)
			for what, err := range map[string]error{"the offset is -1": write, "11 elements": view, "-1 bytes": size} {
				switch {
				case r.Rank == bad:
					r.is(err, cohort.ErrCount, fmt.Sprintf("%s on this rank", what))
				default:
					r.is(err, cohort.ErrMismatch, fmt.Sprintf("%s on rank %d", what, bad), fmt.Sprintf("rank %d", bad), what)
				}
			}
		}
		r.ok(f.Close())
	})
}

// TestMismatchedCalls has one rank call another operation, or with another argument. Nothing is written, and the file
// stays usable.
func TestMismatchedCalls(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		f := r.create()
		for _, who := range []int{0, r.Size - 1} {
			var err error
			if r.Rank == who {
				_, err = f.ReadAtAll(make([]byte, 10), 0)
			} else {
				_, err = f.WriteAtAll(make([]byte, 10), 0)
			}
			r.is(err, cohort.ErrMismatch, fmt.Sprintf("ReadAtAll on rank %d and WriteAtAll", who), "readatall", "writeatall", "rank 0")
			size := int64(10)
			if r.Rank == who {
				size++
			}
			r.is(f.SetSize(size), cohort.ErrMismatch, "SetSize with another argument", "10", "11", "bytes")
			r.is(file.WriteNpy(f, make([]byte, size), []int{int(size)}, []int{int(size)}, []int{0}), cohort.ErrMismatch, "WriteNpy with another size", "different sizes")
		}
		r.ok(f.Close())
	})
}

// TestSecondGoroutineInACollective has two goroutines of rank 0 call a collective operation before the other ranks do.
func TestSecondGoroutineInACollective(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		f := r.create()
		word := []byte{0}
		if r.Rank == 0 {
			results := make(chan error, 2)
			for range 2 {
				go func() { results <- f.Sync() }()
			}
			r.is(<-results, cohort.ErrBusy, "Sync while another goroutine waits in one")
			for other := 1; other < r.Size; other++ {
				r.ok(cohort.Send(r.Comm, word, other, 1))
			}
			r.ok(<-results)
		} else {
			must(cohort.Recv(r.Comm, word, 0, 1))
			r.ok(f.Sync())
		}
		r.ok(f.Close())
	})
}

// TestWritesToAFullDevice writes to a device that is always full. All ranks get the same errors, which name the bytes.
func TestWritesToAFullDevice(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		const full = "/dev/full"
		if _, err := os.Stat(full); err != nil {
			return // only Linux has it
		}
		f := must(file.Open(r.Comm, full, os.O_WRONLY, 0))
		const row, rows = 1000, 50
		l := cohort.Vector(rows, row, row*r.Size)
		_, blocks := f.WriteAtAll(make([]byte, row*rows*10), int64(r.Rank*row*rows*10))
		for i, err := range []error{file.WriteView(f, make([]byte, rows*row), int64(row*r.Rank), l), blocks} {
			all := []int{row * rows * r.Size, row * rows * 10}[i] // rank 0 has written none of its bytes
			r.is(err, syscall.ENOSPC, "a write to a full device", "write", full, "rank 0", "bytes 0 to ", fmt.Sprintf(" to %d:", all-1))
			texts, counts, e := cohort.AllgathervAppend(r.Comm, nil, []byte(fmt.Sprint(err)))
			r.ok(e)
			if first := texts[:counts[0]]; string(first) != fmt.Sprint(err) {
				r.Errorf("the error is %q on rank 0 and %q here", first, err)
			}
		}
		r.ok(f.Close())
	})
}

// TestDeadline has one rank stay away.
func TestDeadline(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		f := r.create()
		if r.Rank > 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			r.is(errorOf(f.WithContext(ctx).WriteAtAll(pattern(0, 100), int64(100*r.Rank))), cohort.ErrTimeout, "WriteAtAll without rank 0", "writeatall", r.path(), fmt.Sprintf("bytes %d to %d", 100*r.Rank, 100*r.Rank+99))
			cancel()
		}
		r.ok(r.Comm.Barrier())
		r.is(errorOf(f.WriteAtAll(nil, 0)), cohort.ErrBroken, "WriteAtAll after a deadline")
		must(f.WriteAt(pattern(100*r.Rank, 100), int64(100*r.Rank)))
		r.ok(r.Comm.Barrier())
		r.content("WriteAt after a deadline", pattern(0, 100*r.Size))
		if err := f.Close(); !errors.Is(err, cohort.ErrBroken) {
			r.Errorf("Close after a deadline: %v", err)
		}
		r.ok(f.Close())
	})
}

// TestCallsAfterClose uses a file after Close, and one that rank 0 has closed early.
func TestCallsAfterClose(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		f := r.create()
		r.ok(f.Close())
		p := make([]byte, 1)
		_, readAt := f.ReadAt(p, 0)
		_, writeAt := f.WriteAt(p, 0)
		_, readAtAll := f.ReadAtAll(p, 0)
		_, writeAtAll := f.WriteAtAll(p, 0)
		_, appendAll := f.AppendAll(p)
		_, size := f.Size()
		_, header := file.ReadNpyHeader(f)
		one := cohort.Vector(1, 1, 1)
		for i, err := range []error{readAt, writeAt, readAtAll, writeAtAll, appendAll, size, header, f.Sync(), f.SetSize(1), f.Preallocate(1),
			file.ReadView(f, p, 0, one), file.WriteView(f, p, 0, one), file.ReadNpy(f, p, []int{1}, []int{0}), file.WriteNpy(f, p, []int{1}, []int{1}, []int{0})} {
			r.is(err, cohort.ErrClosed, fmt.Sprintf("call %d after Close", i))
			r.is(err, fs.ErrClosed, fmt.Sprintf("call %d after Close", i))
		}
		r.ok(f.Close())
		r.content("calls after Close", nil)
		if r.Size == 1 {
			return
		}
		f = r.create()
		if r.Rank == 0 {
			r.is(f.Close(), cohort.ErrMismatch, "Close while the others write")
		} else {
			r.is(errorOf(f.WriteAtAll(p, 0)), cohort.ErrMismatch, "WriteAtAll while rank 0 closes", "close", "writeatall")
		}
		r.is(errorOf(f.AppendAll(p)), cohort.ErrClosed, "AppendAll after rank 0 has closed")
		r.ok(f.Close())
	})
}

// TestLengths changes the length of a file.
func TestLengths(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		f := r.create()
		is := func(what string, want int64) {
			if n, err := f.Size(); n != want || err != nil {
				r.Errorf("Size after %s: %d, %v; want %d", what, n, err, want)
			}
			r.ok(r.Comm.Barrier())
		}
		is("Open", 0)
		r.ok(f.SetSize(12345))
		is("SetSize", 12345)
		err := f.Preallocate(30000)
		switch {
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, cohort.ErrNotSupported): // the file system or the system
		default:
			r.ok(err)
			is("Preallocate", 30000)
			r.ok(f.Preallocate(100))
			is("Preallocate of less", 30000)
		}
		r.ok(f.SetSize(3))
		is("SetSize to less", 3)
		r.content("SetSize", make([]byte, 3))
		r.ok(f.Preallocate(0))
		r.ok(f.Sync())
		r.ok(f.Close())
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
		r.ok(file.WriteNpy(f, mine, sizes, []int{3, 2, 5}, []int{0, 2 * r.Rank, 0}))
		if a := must(file.ReadNpyHeader(f)); a.Type != "<c8" && a.Type != ">c8" || !slices.Equal(a.Shape, sizes) || a.Fortran {
			r.Errorf("the header is %+v, want complex64 of %v", a, sizes)
		}
		all := make([]complex64, 3*sizes[1])
		k := r.Rank % 5
		r.ok(file.ReadNpy(f, all, []int{3, sizes[1], 1}, []int{0, 0, k}))
		each(r, all, func(at int) complex64 { return elem(at/sizes[1], at%sizes[1], k) }, "ReadNpy")
		r.ok(r.Comm.Barrier()) // all have read
		for _, empty := range [][]int{{0}, {0, 3}, {2, 0, 4}} {
			starts := make([]int, len(empty))
			r.ok(file.WriteNpy(f, []int16{}, empty, empty, starts))
			if a, err := file.ReadNpyHeader(f); err != nil || !slices.Equal(a.Shape, empty) {
				r.Errorf("the header of an array of %v is %+v, %v", empty, a, err)
			}
			r.ok(file.ReadNpy(f, []int16{}, empty, starts))
		}
		r.ok(file.WriteNpy(f, mine, sizes, []int{3, 2, 5}, []int{0, 2 * r.Rank, 0}))
		r.is(file.ReadNpy(f, make([]float64, 5), []int{1, 1, 5}, []int{0, 0, 0}), cohort.ErrType, "ReadNpy of another type", "readnpy", "c8", "f8", "float64")
		r.is(file.ReadNpy(f, mine, []int{4, 2, 5}, []int{0, 0, 0}), cohort.ErrCount, "ReadNpy of a part that is not inside")
		r.is(file.WriteNpy(f, []struct{ X int }{}, sizes, sizes, sizes), cohort.ErrType, "WriteNpy of structs")
		r.ok(r.Comm.Barrier())
		r.ok(f.SetSize(20))
		r.is(errorOf(file.ReadNpyHeader(f)), cohort.ErrType, "a header that is cut off")
		r.ok(f.Close())
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
		r.ok(file.WriteView(f, block, 0, cohort.Subarray(sizes, []int{rows, cols}, []int{0, r.Rank * cols})))
		var lens, displs []int // of all columns, the last one first: the layout is not ascending
		for j := sizes[1] - 1; j >= 0; j-- {
			for i := range rows {
				lens, displs = append(lens, 1), append(displs, i*sizes[1]+j)
			}
		}
		got := make([]packed, rows*sizes[1])
		l := cohort.Indexed(lens, displs)
		check := func(what string) {
			r.ok(file.ReadView(f, got, 0, l))
			each(r, got, func(k int) packed { return elem(k%rows, sizes[1]-1-k/rows) }, what)
			clear(got)
		}
		check("columns of blocks")
		r.ok(file.ReadView(f, got, 0, l))
		r.ok(r.Comm.Barrier())
		r.ok(f.SetSize(0))
		if r.Rank > 0 { // the others have nothing to write
			r.ok(file.WriteView(f, []packed{}, 0, cohort.Layout{}))
		} else {
			r.ok(file.WriteView(f, got, 0, l))
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
			must(f.WriteAtAll(want, 0))
			r.content("the same bytes from all ranks", want)
			got := make([]byte, l.Len())
			r.ok(file.ReadView(f, got, 1, l))
			each(r, got, func(i int) byte { return want[1+3*i] }, "every third byte")
		}
		if n, err := f.ReadAt(want[:10], 7); n != 10 || err != nil || !bytes.Equal(want[:10], pattern(7, 10)) {
			r.Errorf("ReadAt: %d, %v, %v", n, err, want[:10])
		}
		r.ok(r.Comm.Barrier())
		must(f.WriteAt([]byte{byte(r.Rank)}, int64(r.Rank)))
		r.ok(r.Comm.Barrier())
		all := make([]byte, r.Size)
		must(f.ReadAt(all, 0))
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
				must(f.WriteAt(pattern(0, size), 0))
			}
			r.ok(r.Comm.Barrier())
			got := slices.Repeat([]uint16{0x9999}, rows*row)
			err := file.ReadView(f, got, int64(2*row*r.Rank), cohort.Vector(rows, row, row*r.Size))
			there := rows
			if r.Rank < r.Size-1 {
				r.ok(err)
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
			if off := must(f.AppendAll(pattern(mine, unit*(r.Rank%3)))); off != int64(mine) {
				r.Errorf("AppendAll of %d: offset %d, want %d", unit*(r.Rank%3), off, mine)
			}
			r.content("AppendAll", want)
		}
	})
}
