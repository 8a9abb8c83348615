package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func init() {
	// Every rank sends to its two neighbors, and all close a communicator. At the end the segment has less memory than
	// the rings of all pairs.
	programs["neighbors"] = func(c backend.Comm) error {
		n := c.Size()
		for range 5 {
			for _, d := range []int{1, n - 1} {
				must.OK(c.Send(nil, nil, (c.Rank()+d)%n, 1, backend.Standard))
				must.Get(c.Recv(nil, nil, (c.Rank()+n-d)%n, 1))
			}
			must.OK(barrier(c))
		}
		members := make([]int, n)
		for r := range members {
			members[r] = r
		}
		d, err := c.Derive(nil, members, 1)
		must.OK(errors.Join(err, barrier(c)))
		d.Close()
		must.OK(barrier(c))
		fds := must.Get(filepath.Glob("/proc/self/fd/*"))
		for _, fd := range fds {
			var st unix.Stat_t
			if to, _ := os.Readlink(fd); !strings.Contains(to, "cohort-node") {
				continue
			} else if err := unix.Stat(fd, &st); err != nil {
				return err
			}
			if got, most := st.Blocks*512, int64(n)*(256<<10); got > most {
				return fmt.Errorf("%d ranks take %d KiB, want at most %d", n, got>>10, most>>10)
			}
			return nil
		}
		return fmt.Errorf("no segment among %v", fds)
	}
}

// A job takes memory for those pairs of ranks that send each other messages. Heartbeats go to all ranks meanwhile.
func TestMemoryIsForRanksThatTalk(t *testing.T) {
	t.Setenv("SHM_TEST_HEARTBEAT", "100ms")
	launch(t, "neighbors", 48)
}
