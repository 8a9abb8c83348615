package node

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

// crowd is the number of ranks of a job whose memory does not fit into the addresses that "cramped" leaves.
const crowd = 140

func init() {
	// A rank whose address space has room for so many bytes more, if not 0.
	outsiders["cramped"] = func(string) error {
		cfg := Config{Name: os.Getenv("NODE_TEST_JOB")}
		var size int
		var room uint64
		if _, err := fmt.Sscan(os.Getenv("NODE_TEST_ROOM"), &cfg.Rank, &size, &room); err != nil {
			return err
		}
		cfg.Ranks = upTo(size)
		if room > 0 {
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
			r.Cur = pages*uint64(os.Getpagesize()) + room
			if err := unix.Setrlimit(unix.RLIMIT_AS, &r); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n, err := Join(ctx, cfg)
		if err == nil {
			n.Close()
		} else if errors.Is(err, backend.ErrAlloc) {
			err = fmt.Errorf("as ErrAlloc: %w", err)
		}
		return err
	}
}

// TestTooLittleMemoryOnRank0IsErrAllocOnAllRanks: a job whose memory does not fit into the address space of
// rank 0 does not start, and rank 0 passes the reason on to the ranks that join.
func TestTooLittleMemoryOnRank0IsErrAllocOnAllRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: rank 0 waits 2 s to report its lack of memory to the others; make test-all runs it")
	}
	if size := newLayout(&Config{Ranks: upTo(crowd)}).size; size < 120<<20 {
		t.Fatalf("a job of %d ranks takes %d bytes: too few for this test", crowd, size)
	}
	for r, end := range cramped(t, crowd, 2, 0, 96<<20) {
		for _, want := range []string{[]string{"as ErrAlloc: ", "as ErrAlloc: cannot allocate: rank 0 refused: "}[r], "cannot allocate memory", "ulimit -v"} {
			if !strings.Contains(end, want) {
				t.Errorf("rank %d: %s, want %q", r, end, want)
			}
		}
	}
}

// TestTooLittleMemoryIsErrAllocOnAllRanks: the job's memory does not fit into the address space of one rank,
// which every rank names.
func TestTooLittleMemoryIsErrAllocOnAllRanks(t *testing.T) {
	const ranks, victim = 16, 5
	room := newLayout(&Config{Ranks: upTo(ranks)}).size / 2
	for r, end := range cramped(t, ranks, ranks, victim, room) {
		want := fmt.Sprintf("as ErrAlloc: cannot allocate: rank 0 gave up: rank %d: mapping ", victim)
		switch r {
		case 0:
			want = fmt.Sprintf("as ErrAlloc: cannot allocate: rank %d: mapping ", victim)
		case victim:
			want = "as ErrAlloc: cannot allocate: mapping "
		}
		if !strings.Contains(end, want) || !strings.Contains(end, "cannot allocate memory") || !strings.Contains(end, "ulimit -v") {
			t.Errorf("rank %d: %s, want %q", r, end, want)
		}
	}
}

// cramped starts the first ranks of a job, of which the victim has an address space of room bytes more,
// and returns how each ended.
func cramped(t *testing.T, size, started, victim, room int) []string {
	cmds, out := make([]*exec.Cmd, started), make([]strings.Builder, started)
	for r := range cmds {
		limit := 0
		if r == victim {
			limit = room
		}
		cmd := exec.Command("/bin/sh", "-c", `ulimit -s 512 && exec "$0"`, os.Args[0]) // so much for each thread's stack
		cmd.Env = append(os.Environ(), "NODE_TEST_OUTSIDER=cramped", fmt.Sprintf("NODE_TEST_JOB=%d-%s", os.Getpid(), t.Name()),
			fmt.Sprintf("NODE_TEST_ROOM=%d %d %d", r, size, limit), "MALLOC_ARENA_MAX=1") // an arena for each thread would take it all
		cmd.Stderr = &out[r]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[r] = cmd
	}
	ends := make([]string, started)
	for r, cmd := range cmds {
		err := cmd.Wait()
		ends[r] = fmt.Sprint(err, ": ", out[r].String())
	}
	return ends
}
