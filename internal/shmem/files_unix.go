//go:build unix

package shmem

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"
)

// Files checks that this process can open n more files. If it cannot, the error names what needs them (a job of 8 ranks,
// say) and the limit required, and wraps EMFILE or ENFILE. It counts those that are open. Opening n for a moment would
// take a job of n ranks time that is quadratic in n.
func Files(n int, what string) error {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return nil // what needs the files will report it
	}
	room, taken := 0, 0
	dir, err := unix.Open("/dev/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: %s takes %d more, and none can be opened; the limit is the whole system's (sysctl fs.file-max)", err, what, n)
	case errors.Is(err, unix.EMFILE):
	case err != nil:
		return nil
	default:
		defer unix.Close(dir)
		var open []string
		for b, k := make([]byte, 4096), 1; k > 0; {
			k, _ = unix.ReadDirent(dir, b)
			_, _, open = unix.ParseDirent(b[:max(k, 0)], -1, open)
		}
		room = int(min(r.Cur, math.MaxInt32))
		for _, name := range open {
			if fd, err := strconv.Atoi(name); err == nil && fd < room && fd != dir { // above are some if the limit was lowered
				taken++
			}
		}
		room -= taken
	}
	if room < n {
		return fmt.Errorf("%w: %s takes %d more, and %d can be opened; the limit is %d: raise it with ulimit -n %d",
			unix.EMFILE, what, n, max(room, 0), r.Cur, int(r.Cur)+n-room)
	}
	return nil
}
