package file_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/file"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestFilesThatCannotBeOpened opens missing files, on all ranks or on one, and files of the wrong kind. The errors are the same on all ranks.
func TestFilesThatCannotBeOpened(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		missing := filepath.Join(r.dir, "no-folder", "x")
		r.is(errorOf(file.Open(r.Comm, missing, update, 0o600)), fs.ErrNotExist, "Open in a folder that does not exist", "open", missing, "rank 0:")
		must.OK(r.create().Close())
		r.is(errorOf(file.Open(r.Comm, r.path(), update|os.O_EXCL, 0o600)), fs.ErrExist, "Open with O_EXCL of a file that exists")
		r.is(errorOf(file.Open(r.Comm, r.path(), os.O_WRONLY|os.O_APPEND, 0)), fs.ErrInvalid, "Open with O_APPEND")
		r.is(errorOf(file.Open(nil, r.path(), os.O_RDONLY, 0)), cohort.ErrComm, "Open without a communicator")
		must.OK(r.Comm.Barrier())
		if r.Size > 1 {
			r.is(errorOf(file.Open(r.Comm, fmt.Sprint(r.path(), r.Rank/(r.Size-1)), update, 0o600)), cohort.ErrMismatch, "Open of another file on the last rank", "different names")
		}
		// One that can only be read.
		f := must.Get(file.Open(r.Comm, r.path(), os.O_RDONLY, 0))
		_, err := f.WriteAtAll([]byte{1, 2}, int64(2*r.Rank))
		r.is(err, syscall.EBADF, "WriteAtAll to a file opened to be read", "rank 0: bytes 0 to ", "writeatall", r.path(), fmt.Sprintf(" to %d: ", 2*r.Size-1))
		must.OK(f.Close())
	})
}

// TestWrongArgumentsWriteNothing passes wrong arguments on all ranks. Nothing is written, and the file stays usable.
func TestWrongArgumentsWriteNothing(t *testing.T) {
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
			r.is(c.err, c.want, what, c.op, r.path(), fmt.Sprintf("rank %d", r.Rank))
		}
		_, err := f.ReadAt(p, -1)
		if err == nil {
			r.Errorf("ReadAt from a negative offset returns no error")
		}
		if _, err = f.WriteAt(p, -1); err == nil {
			r.Errorf("WriteAt to a negative offset returns no error")
		}
		r.content("after wrong calls", nil)
		must.OK(write(0))
		must.OK(f.Close())
		var none *file.File
		r.is(errorOf(none.WriteAtAll(p, 0)), fs.ErrInvalid, "WriteAtAll to a nil File")
		r.is(errorOf(none.ReadAt(p, 0)), fs.ErrInvalid, "ReadAt of a nil File")
		r.is(none.WithContext(t.Context()).Sync(), fs.ErrInvalid, "Sync of a nil File")
		must.OK(none.Close())
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
		must.OK(f.Close())
	})
}

// TestMismatchedCallsWriteNothing has one rank call another operation, or with another argument. Nothing is written, and the file
// stays usable.
func TestMismatchedCallsWriteNothing(t *testing.T) {
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
		must.OK(f.Close())
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
				must.OK(cohort.Send(r.Comm, word, other, 1))
			}
			must.OK(<-results)
		} else {
			must.Get(cohort.Recv(r.Comm, word, 0, 1))
			must.OK(f.Sync())
		}
		must.OK(f.Close())
	})
}

// TestWritesToAFullDevice writes to a device that is always full. All ranks get the same errors, which name the bytes.
func TestWritesToAFullDevice(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		const full = "/dev/full"
		if _, err := os.Stat(full); err != nil {
			return // only Linux has it
		}
		f := must.Get(file.Open(r.Comm, full, os.O_WRONLY, 0))
		const row, rows = 1000, 50
		l := cohort.Vector(rows, row, row*r.Size)
		_, blocks := f.WriteAtAll(make([]byte, row*rows*10), int64(r.Rank*row*rows*10))
		for i, err := range []error{file.WriteView(f, make([]byte, rows*row), int64(row*r.Rank), l), blocks} {
			all := []int{row * rows * r.Size, row * rows * 10}[i] // rank 0 has written none of its bytes
			r.is(err, syscall.ENOSPC, "a write to a full device", "write", full, "rank 0", "bytes 0 to ", fmt.Sprintf(" to %d:", all-1))
			texts, counts, e := cohort.AllgathervAppend(r.Comm, nil, []byte(fmt.Sprint(err)))
			must.OK(e)
			if first := texts[:counts[0]]; string(first) != fmt.Sprint(err) {
				r.Errorf("the error is %q on rank 0 and %q here", first, err)
			}
		}
		must.OK(f.Close())
	})
}

// TestOperationsEndWhenRankStaysAway has one rank stay away.
func TestOperationsEndWhenRankStaysAway(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		f := r.create()
		if r.Rank > 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			r.is(errorOf(f.WithContext(ctx).WriteAtAll(pattern(0, 100), int64(100*r.Rank))), cohort.ErrTimeout, "WriteAtAll without rank 0", "writeatall", r.path(), fmt.Sprintf("bytes %d to %d", 100*r.Rank, 100*r.Rank+99))
			cancel()
		}
		must.OK(r.Comm.Barrier())
		r.is(errorOf(f.WriteAtAll(nil, 0)), cohort.ErrBroken, "WriteAtAll after a deadline")
		must.Get(f.WriteAt(pattern(100*r.Rank, 100), int64(100*r.Rank)))
		must.OK(r.Comm.Barrier())
		r.content("WriteAt after a deadline", pattern(0, 100*r.Size))
		if err := f.Close(); !errors.Is(err, cohort.ErrBroken) {
			r.Errorf("Close after a deadline: %v", err)
		}
		must.OK(f.Close())
	})
}

// TestCallsAfterClose uses a file after Close, and one that rank 0 has closed early.
func TestCallsAfterClose(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		f := r.create()
		must.OK(f.Close())
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
		must.OK(f.Close())
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
		must.OK(f.Close())
	})
}
