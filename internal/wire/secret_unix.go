//go:build unix

package wire

import (
	"fmt"
	"os"
	"syscall"
)

// openSecret opens without waiting for anybody at the other end of a named pipe.
func openSecret(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// private says of an open file why it is not this user's alone. It is asked of the descriptor, so
// that what was looked at is what is read.
func private(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("is no regular file (%s): put the secret into a file, or hand over a descriptor", info.Mode())
	}
	if mode := info.Mode().Perm(); mode&^0o600 != 0 {
		return fmt.Errorf("has mode %#o, and others may read or write it: chmod 600 it, and make a new secret if others were there", mode)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, and this process runs as %d: use a file of your own", st.Uid, os.Geteuid())
	}
	return nil
}
