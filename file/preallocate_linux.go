package file

import (
	"os"

	"golang.org/x/sys/unix"
)

// preallocate reserves room for the first n bytes of a file.
func preallocate(f *os.File, n int64) error {
	for n > 0 { // fallocate refuses 0
		if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != unix.EINTR {
			return err
		}
	}
	return nil
}
