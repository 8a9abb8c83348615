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
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			fds = append(fds, fd)
			continue
		}
		limit := "the limit is the whole system's (sysctl fs.file-max)"
		var r unix.Rlimit
		switch {
		case errors.Is(err, unix.EMFILE) && unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil:
			limit = fmt.Sprintf("the limit is %d: raise it with ulimit -n %d", r.Cur, int(r.Cur)+n-len(fds))
		case !errors.Is(err, unix.ENFILE): // no /dev/null, for instance: what needs the files will report it
			return nil
		}
		return fmt.Errorf("%w: %s takes %d more, and %d can be opened; %s", err, what, n, len(fds), limit)
	}
	return nil
}
