//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// stopSelf stops this process until another one lets it go on. The thread that
// takes the signal may be another one, and this one runs on until then.
func stopSelf() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGCONT)
	defer signal.Stop(again)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-again
}

// silent checks that an operation ended because a rank was silent.
func silent(err error, rank int) error {
	if lost(err, rank) != nil || !strings.Contains(err.Error(), "silent for 200ms") {
		return fmt.Errorf("got %v, want ErrPeerLost because rank %d was silent for 200ms", err, rank)
	}
	return nil
}

func init() {
	// A rank becomes another program, without Close.
	programs["exec"] = func(c backend.Comm) error {
		pids, err := pids(c)
		must.OK(errors.Join(err, works(c)))
		if c.Rank() == 1 {
			return syscall.Exec("/bin/sleep", []string{"sleep", "60"}, os.Environ())
		}
		defer syscall.Kill(pids[1], syscall.SIGKILL)
		_, err = c.Recv(&backend.Bound{Timeout: 5 * time.Second}, make([]byte, 8), 1, 1)
		return silent(err, 1)
	}

	// A rank is stopped. The others lose it and go on; when it moves again it finds that out, even if they have
	// left.
	programs["silent"] = func(c backend.Comm) error {
		const victim = 1
		pids, err := pids(c)
		must.OK(errors.Join(err, works(c)))
		if c.Rank() == victim {
			stopSelf()
			for range 2 {
				_, err := c.Recv(nil, make([]byte, 8), 0, 1)
				must.OK(errors.Join(silent(err, victim), silent(sum(c, 1), victim)))
			}
			return nil
		}
		must.OK(silent(sum(c, 1), victim))
		d := must.Get(shrink(c, 1, victim))
		must.OK(works(d))
		if c.Rank() == 0 {
			must.OK(syscall.Kill(pids[victim], syscall.SIGCONT))
		}
		return works(d)
	}
}

func TestSilentRankIsLost(t *testing.T) {
	t.Setenv("SHM_TEST_HEARTBEAT", "200ms")
	launch(t, "silent", 3)
}

func TestRankThatBecomesAnotherProgramIsErrPeerLost(t *testing.T) {
	t.Setenv("SHM_TEST_HEARTBEAT", "200ms")
	if err := run(t, "exec", 2)[0]; err != nil {
		t.Error(err)
	}
}
