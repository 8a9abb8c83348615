package file

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// ownDisk runs a test again in a process that has a file system of 1 MiB, and returns "" when it has ended. In that
// process it returns the folder.
func ownDisk(t *testing.T) string {
	t.Helper()
	const variable = "FILE_TEST_DISK"
	if dir := os.Getenv(variable); dir != "" {
		return dir
	}
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		err = exec.Command(unshare, "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).Run()
	}
	if err != nil {
		need.MissingRight(t, "a process cannot have a file system of its own here, which takes unshare and root: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(unshare, "-m", "sh", "-c", `mount -t tmpfs -o size=1m none "$0" && exec "$@"`, dir, self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return ""
}

// On a disk that gets full during a write, every rank gets the same errors. Bytes that they do not name are in the
// file. When there is room the file can be written again.
func TestFullDiskErrorsNameAllMissingBytes(t *testing.T) {
	dir := ownDisk(t)
	if dir == "" {
		return
	}
	const ranks, each = 3, 700_000 // bytes
	name := filepath.Join(dir, "f")
	want := make([]byte, ranks*each)
	for i := range want {
		want[i] = 1 + byte(rand.IntN(255)) // never 0, which is what bytes are that nobody has written
	}
	for _, row := range []int{each, 1000, 100_000} {
		texts := make([]string, ranks)
		missing := make([]bool, len(want))
		run := func() error {
			return cohort.Run(t.Context(), ranks, func(world *cohort.Comm) error {
				f, err := Open(world, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
				if err != nil {
					return err
				}
				var mine []byte
				for at := world.Rank() * row; at < len(want); at += ranks * row {
					mine = append(mine, want[at:at+row]...)
				}
				l := cohort.Vector(each/row, row, ranks*row)
				err = WriteView(f, mine, int64(world.Rank()*row), l)
				texts[world.Rank()] = fmt.Sprint(err)
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("rows of %d: rank %d: %v, want %v", row, world.Rank(), err, syscall.ENOSPC)
				}
				if world.Rank() == 0 {
					for _, e := range all(err) {
						for i := range e.Len {
							missing[e.Off+i] = true
						}
					}
				}
				room := f.Preallocate(1 << 30)
				if !errors.Is(room, syscall.ENOSPC) {
					t.Errorf("Preallocate of 1 GiB: %v, want %v", room, syscall.ENOSPC)
				}
				got, e := os.ReadFile(name)
				if world.Rank() == 0 {
					for i, x := range got {
						if x != want[i] && !missing[i] {
							t.Errorf("rows of %d: byte %d is not written and in no error: %s", row, i, texts[0])
							break
						}
					}
					for i := len(got); i < len(want); i++ {
						if !missing[i] {
							t.Errorf("rows of %d: byte %d is after the end of the file and in no error: %s", row, i, texts[0])
							break
						}
					}
				}
				// Every rank has read the file before it is made shorter.
				e = errors.Join(e, world.Barrier(), f.SetSize(0))
				_, again := f.WriteAtAll(want[:100], int64(100*world.Rank()))
				return errors.Join(e, again, f.Close())
			})
		}
		if err := run(); err != nil {
			t.Error(err)
		}
		for r, text := range texts {
			if text != texts[0] {
				t.Errorf("rows of %d: the error is %q on rank 0 and %q on rank %d", row, texts[0], text, r)
			}
		}
	}
}

// all returns the errors about bytes in a joined error.
func all(err error) (errs []*Error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			errs = append(errs, all(e)...)
		}
		return errs
	}
	var e *Error
	if errors.As(err, &e) {
		errs = append(errs, e)
	}
	return errs
}

// Rows up to the last offset that a file can have are written and read back. What does not fit there is an error on
// all ranks.
func TestLastOffsetsOfAFile(t *testing.T) {
	dir := ownDisk(t)
	if dir == "" {
		return
	}
	err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error {
		f, err := Open(world, filepath.Join(dir, "f"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		const row, rows = 64, 1000
		mine := bytes.Repeat([]byte{1 + byte(world.Rank())}, row*rows)
		l := cohort.Vector(rows, row, 2*row)
		off := math.MaxInt64 - int64(2*row*rows) + int64(row*world.Rank())
		if err := WriteView(f, mine, off, l); err != nil {
			return err
		}
		got := make([]byte, row*rows)
		if err := ReadView(f, got, off, l); err != nil || !bytes.Equal(got, mine) {
			t.Errorf("rank %d: ReadView of the last rows: %v, or it reads others", world.Rank(), err)
		}
		for _, room := range []int64{0, 5, 15} {
			if err := f.SetSize(math.MaxInt64 - room); err != nil {
				return err
			}
			if off, err := f.AppendAll(make([]byte, 10)); !errors.Is(err, cohort.ErrCount) {
				t.Errorf("rank %d: AppendAll of 20 bytes in all where %d have room: %d, %v; want %v", world.Rank(), room, off, err, cohort.ErrCount)
			}
			if n, err := f.Size(); n != math.MaxInt64-room || err != nil {
				t.Errorf("the file has %d bytes after AppendAll, %v; want %d", n, err, math.MaxInt64-room)
			}
			if err := world.Barrier(); err != nil {
				return err
			}
		}
		return f.Close()
	})
	if err != nil {
		t.Error(err)
	}
}
