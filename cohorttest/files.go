package cohorttest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/file"
)

// Package file on every backend.

const (
	update = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	hole   = 0xEE
)

// path is the name of a file for this scenario, the same on all ranks.
func (r *Rank) path() string { return filepath.Join(r.job.Dir, filepath.Base(r.scenario)+".bin") }

// create opens a new file, which is closed at the end.
func (r *Rank) create() *file.File {
	f := must(file.Open(r.Comm, r.path(), update, 0o600))
	r.atEnd(f.Close)
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
		equal(r, must(f.WriteAtAll(want[lo:hi], int64(lo))), hi-lo, "%s: WriteAtAll", what)
		r.content("blocks "+what, want)
		rows := make([]byte, len(mine))
		r.OK(file.ReadView(f, rows, at, l))
		equalSlices(r, rows, mine, "%s: ReadView of rows", what)
	}
}

// fileOpen opens a file that the last rank does not see, because it works in another folder.
func fileOpen(r *Rank) {
	if !r.World.Caps().Processes {
		return
	}
	r.OK(r.create().Close())
	here, to := must(os.Getwd()), r.job.Dir
	if r.Rank == r.Size-1 {
		to = os.TempDir()
	}
	r.OK(os.Chdir(to))
	_, err := file.Open(r.Comm, filepath.Base(r.path()), os.O_RDWR|os.O_CREATE, 0o600)
	r.Is(err, fs.ErrNotExist, "Open of a file that the last rank does not see").names(fmt.Sprintf("rank %d:", r.Size-1))
	r.OK(os.Chdir(here))
}
