//go:build unix

package shmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Files checks that this process can open n more files, by opening as many for a moment. If it
// cannot, the error names what needs them (a job of 8 ranks, say) and the limit required, and wraps
// EMFILE or ENFILE.
func Files(n int, what string) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for len(fds) < n {
		fd, err := -1, error(nil)
		if len(fds) == 0 {
			fd, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		} else {
			fd, err = unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
		}
		switch {
		case err == nil:
			fds = append(fds, fd)
		case errors.Is(err, unix.EMFILE):
			var r unix.Rlimit
			if e := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); e != nil {
				return fmt.Errorf("%w: %s takes %d more, and %d can be opened", err, what, n, len(fds))
			}
			return fmt.Errorf("%w: %s takes %d more, and %d can be opened; the limit is %d: raise it with ulimit -n %d",
				err, what, n, len(fds), r.Cur, int(r.Cur)+n-len(fds))
		case errors.Is(err, unix.ENFILE):
			return fmt.Errorf("%w: %s takes %d more, and %d can be opened; the limit is the whole system's (sysctl fs.file-max)",
				err, what, n, len(fds))
		default: // no /dev/null, for instance: what needs the files will report it
			return nil
		}
	}
	return nil
}
