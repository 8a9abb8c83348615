//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func lost(err error, rank int) error {
	if !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d", rank)) {
		return fmt.Errorf("got %v, want ErrPeerLost naming rank %d", err, rank)
	}
	return nil
}

func init() {
	// The last rank makes another call than the others. Each ends its process as soon as it knows.
	programs["mismatched"] = func(c backend.Comm) error {
		must.OK(sum(c, 1))
		call := &backend.Call{Coll: backend.Barrier, Root: -1, Seq: 2}
		if c.Rank() == c.Size()-1 {
			call = &backend.Call{Coll: backend.Allreduce, Root: -1, Op: sum64, Type: int64s, Count: 1, Send: make([]byte, 8), Recv: make([]byte, 8), Seq: 2}
		}
		_, err := c.(backend.Collectives).Collective(nil, call)
		if errors.Is(err, backend.ErrMismatch) {
			os.Exit(knows)
		}
		return fmt.Errorf("got %v, want ErrMismatch", err)
	}

	// A waiting rank uses little processor time: a small part of the time waited.
	programs["idle"] = func(c backend.Comm) error {
		if c.Rank() == 1 {
			time.Sleep(500 * time.Millisecond) // on purpose: rank 0 waits for so long
			return c.Send(nil, make([]byte, 8), 0, 1, backend.Standard)
		}
		before := cpu()
		must.Get(c.Recv(nil, make([]byte, 8), 1, 1))
		if used := cpu() - before; used > 100*time.Millisecond {
			return fmt.Errorf("waiting half a second took %v of processor time", used)
		}
		return nil
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestIdleRankUsesNoProcessor(t *testing.T) { launch(t, "idle", 2) }

// A rank that joins with wrong arguments receives the reason, and the job is not affected.
func TestJoinErrorsNameTheReason(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		cfg  backend.Config
		want string
	}{
		{backend.Config{Rank: 0, Size: 0, Job: "x"}, "not 0"},
		{backend.Config{Rank: 0, Size: MaxRanks + 1, Job: "x"}, "not 257"},
		{backend.Config{Rank: 2, Size: 2, Job: "x"}, "rank 2 of a job of 2"},
		{backend.Config{Rank: -1, Size: 2, Job: "x"}, "rank -1"},
		{backend.Config{Rank: 0, Size: 2}, "COHORT_JOB"},
		{backend.Config{Rank: 0, Size: 3, Job: "alone" + t.Name()}, "ranks 1, 2 did not join"},
		{backend.Config{Rank: 1, Size: 3, Job: "nobody" + t.Name()}, "rank 0 did not appear"},
	} {
		c.cfg.JoinTimeout = 200 * time.Millisecond
		_, err := Open(ctx, c.cfg)
		if ctx.Err() != nil {
			t.Errorf("%+v: waited until the context ended", c.cfg)
		}
		if !errors.Is(err, backend.ErrInit) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want ErrInit with %q", c.cfg, err, c.want)
		}
	}
}

const knows = 33 // the status of a rank that knows of a mismatch

// TestMismatchReachesEveryRank has ranks end their processes without a word once they know of a mismatch. The others
// learn of the mismatch nevertheless, and not of lost ranks.
func TestMismatchReachesEveryRank(t *testing.T) {
	for range rounds(10) {
		for _, err := range run(t, "mismatched", 4) {
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != knows {
				t.Error(err)
			}
		}
	}
}

// A rank whose time ends before that of rank 0 does not take rank 0 for ended.
func TestJoinErrorNamesMissingRankOnEveryRank(t *testing.T) {
	var all sync.WaitGroup
	for rank, limit := range []time.Duration{400 * time.Millisecond, 200 * time.Millisecond} {
		all.Go(func() {
			_, err := Open(context.Background(), backend.Config{Rank: rank, Size: 3, Job: t.Name(), JoinTimeout: limit})
			if !errors.Is(err, backend.ErrInit) || strings.Contains(err.Error(), "ended") || !strings.Contains(err.Error(), "join") {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
}
