//go:build unix

package meet

import (
	"fmt"
	"os"
	"syscall"
)

// openPrivate opens a regular file that other users cannot read or write, or that is mounted. It checks the descriptor, so that
// the file checked is the file read, and does not wait for a writer if path is a named pipe.
func openPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		mode, owner := info.Mode(), int(info.Sys().(*syscall.Stat_t).Uid)
		switch {
		case mode.IsRegular() && mode.Perm()&0o022 == 0 && owner == 0 && mounted(f):
		case !mode.IsRegular():
			err = fmt.Errorf("is not a regular file (%s); put the secret into a file, or pass a descriptor", mode)
		case mode.Perm()&^0o600 != 0:
			err = fmt.Errorf("has mode %#o, so other users may read or write it; chmod 600 it, and make a new secret if others may have read it", mode.Perm())
		case owner != os.Geteuid():
			err = fmt.Errorf("belongs to user %d, and this process runs as %d; use a file of your own", owner, os.Geteuid())
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return f, nil
}
