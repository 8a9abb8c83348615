package file

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Where nothing fails, ranks that have one block each to write or read exchange one message about it, and wait for
// nothing else. Rank 1 does its part by hand.
func TestBlocksNeedOneAgreement(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error {
		f, err := Open(world, name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		for _, o := range []op{opWriteAtAll, opReadAtAll} {
			mine := call{State: moved, Size: 100}
			switch {
			case world.Rank() == 1:
				_, _, err = f.on(o).gather(mine, nil)
			case o == opWriteAtAll:
				_, err = f.WriteAtAll(make([]byte, 100), 0)
			default:
				_, err = f.ReadAtAll(make([]byte, 100), 0)
			}
			if err = errors.Join(err, f.c.Barrier()); err != nil {
				return err
			}
		}
		return f.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// A rank with one block writes it before the others, which have pieces between each other's, and all get the errors of all.
func TestBlockAndPiecesAreWrittenTogether(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	const n = 1000
	err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
		f, err := Open(world, name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		mine, l := make([]byte, n), cohort.Vector(1, n, n)
		if world.Rank() > 0 {
			l = cohort.Vector(n, 1, 2)
		}
		off := []int64{0, n, n + 1}[world.Rank()]
		for i := range mine {
			mine[i] = byte(1 + world.Rank())
		}
		err = WriteView(f, mine, off, l)
		got := make([]byte, n)
		err = errors.Join(err, ReadView(f, got, off, l))
		if string(got) != string(mine) {
			t.Errorf("rank %d reads what it has not written", world.Rank())
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		t.Error(err)
	}
	if all, err := os.ReadFile(name); len(all) != 3*n || err != nil {
		t.Errorf("the file has %d bytes (%v), want %d", len(all), err, 3*n)
	}
}

// Rank 0 has one block, whose write fails before the ranks agree. The others have pieces between each other's, and rank 2
// leaves in the middle. The errors name rank 0's block, which is not in the file.
func TestErrorOfEarlyBlockIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	const n, far = 1000, int64(1) << 62 // no file system has such files
	err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
		f, err := Open(world, name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		mine := make([]byte, n)
		switch world.Rank() {
		case 0:
			err := WriteView(f, mine, far, cohort.Vector(1, n, n))
			var e *Error
			if !errors.As(err, &e) || e.Off > far || far >= e.Off+e.Len {
				t.Errorf("no error names byte %d: %v", far, err)
			}
		case 1:
			if err := WriteView(f, mine, 0, cohort.Vector(n, 1, 2)); err == nil {
				t.Error("rank 1 gets no error")
			}
		case 2: // by hand
			_, _, err = f.on(opWriteView).gather(call{Lo: 1, Hi: 2 * n, Bytes: n, Pieces: n}, nil)
			f.c.Close()
		}
		err = errors.Join(err, world.Barrier())
		_ = f.Close()
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
