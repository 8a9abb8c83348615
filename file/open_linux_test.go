package file

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The ranks of an ordinary user can use a file that they create, whatever its permissions are, as one process can. The file
// then has these permissions.
func TestCreatedFileIsOpenOnAllRanks(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // another user may not reach it by its path
	if os.Geteuid() == 0 {
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setresuid(-1, nobody, -1); err != nil {
			t.Fatal(err)
		}
		defer syscall.Setresuid(-1, 0, -1)
	}
	for _, c := range []struct {
		name        string
		flag        int
		perm, umask fs.FileMode
	}{
		{"write", os.O_WRONLY, 0o444, 0o022},
		{"write nothing allowed", os.O_WRONLY | os.O_EXCL, 0, 0o022},
		{"read and write", os.O_RDWR | os.O_TRUNC, 0o200, 0o022},
		{"read", os.O_RDONLY, 0o200, 0o022},
		{"umask", os.O_RDWR, 0o666, 0o777},
		{"ordinary", os.O_RDWR, 0o640, 0o022},
	} {
		old := syscall.Umask(int(c.umask))
		err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
			f, err := Open(world, c.name, c.flag|os.O_CREATE, c.perm)
			if err != nil {
				return err
			}
			defer f.Close()
			if c.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
				return nil
			}
			_, err = f.WriteAt([]byte{'x'}, int64(world.Rank()))
			return err
		})
		syscall.Umask(old)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if st, err := os.Stat(c.name); err != nil || st.Mode().Perm() != c.perm&^c.umask {
			t.Errorf("%s: %v, %v; want permissions %v", c.name, st, err, c.perm&^c.umask)
		}
	}
}

// A named pipe that nobody writes to would hold a rank in the call that opens it.
func TestNamedPipeIsNotOpened(t *testing.T) {
	name := t.TempDir() + "/pipe"
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error {
		if _, err := Open(world, name, os.O_RDONLY, 0); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("rank %d: %v, want ErrInvalid", world.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
