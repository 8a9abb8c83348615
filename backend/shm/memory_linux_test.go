package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
)

// crowd is the number of ranks of a job whose memory does not fit into what "cramped" leaves: some
// 180 MiB.
const crowd = 140

func init() {
	// A rank whose address space has room for 96 MiB more (COHORT_RANK 0), or that joins it.
	strangers["cramped"] = func(string) error {
		cfg := Config{Size: crowd, Job: os.Getenv("SHM_TEST_JOB")}
		if _, err := fmt.Sscan(os.Getenv("SHM_TEST_RANK"), &cfg.Rank); err != nil {
			return err
		}
		if cfg.Rank == 0 {
			b, err := os.ReadFile("/proc/self/statm")
			if err != nil {
				return err
			}
			var pages uint64
			if _, err := fmt.Sscan(string(b), &pages); err != nil {
				return err
			}
			var r unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_AS, &r); err != nil {
				return err
			}
			r.Cur = pages*uint64(os.Getpagesize()) + 96<<20
			if err := unix.Setrlimit(unix.RLIMIT_AS, &r); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err := Open(ctx, cfg)
		if err == nil {
			c.Close()
		} else if errors.Is(err, backend.ErrAlloc) {
			err = fmt.Errorf("as ErrAlloc: %w", err)
		}
		return err
	}
}

// A job whose memory does not fit into a rank's address space does not begin: rank 0 says what it could
// not have, and those who come hear it from rank 0, as ErrAlloc too.
func TestTooLittleMemory(t *testing.T) {
	if size := newLayout(crowd).size; size < 120<<20 {
		t.Fatalf("a job of %d ranks takes %d bytes: too few for this test", crowd, size)
	}
	var cmds [2]*exec.Cmd
	var out [2]strings.Builder
	for r := range cmds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SHM_TEST_STRANGER=cramped", fmt.Sprintf("SHM_TEST_JOB=%d-memory", os.Getpid()),
			fmt.Sprintf("SHM_TEST_RANK=%d", r), "MALLOC_ARENA_MAX=1") // an arena for each thread would take it all
		cmd.Stderr = &out[r]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[r] = cmd
	}
	for r, cmd := range cmds {
		err, text := cmd.Wait(), out[r].String()
		for _, want := range []string{[]string{"as ErrAlloc: ", "as ErrAlloc: cannot allocate: rank 0 refused: "}[r], "cannot allocate memory", "ulimit -v"} {
			if err == nil || !strings.Contains(text, want) {
				t.Errorf("rank %d: %v: %s, want %q", r, err, text, want)
			}
		}
	}
}
