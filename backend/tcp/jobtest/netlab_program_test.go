//go:build linux

package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/test/leak"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// programOf marks a process that is a rank of a test's program.
const programOf = "NETLAB_PROGRAM"

// asRank does a rank's part and ends the process, if this process was started by startRanks.
func asRank(t *testing.T, program func(world *cohort.Comm) error) {
	t.Helper()
	cohorttest.Become()
	if os.Getenv(programOf) == "" {
		return
	}
	files, routines := leak.Files(), runtime.NumGoroutine()
	world, err := cohort.Init(context.Background(), nil)
	if err == nil {
		err = program(world)
		if e := world.Close(); e != nil && !errors.Is(e, cohort.ErrPeerLost) {
			err = errors.Join(err, fmt.Errorf("close: %w", e))
		}
		err = errors.Join(err, leak.Above("descriptors", leak.Files, files))
		if e := leak.Above("goroutines", runtime.NumGoroutine, routines); e != nil {
			buf := make([]byte, 1<<20)
			err = errors.Join(err, fmt.Errorf("%w:\n%s", e, buf[:runtime.Stack(buf, true)]))
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// outcome is how a rank has ended, and what it has printed.
type outcome struct {
	err  error
	text string
}

// rankPatience is how long the ranks of a program may take in all.
const rankPatience = 2 * time.Minute

// startRanks starts this test's program on hosts 0 to ranks-1 and returns what waits for them.
func startRanks(t *testing.T, n *netlab.Net, ranks int, env ...string) (wait func() []outcome) {
	t.Helper()
	of := make([]int, ranks)
	for r := range of {
		of[r] = r
	}
	return startRanksOn(t, n, of, env...)
}

// startRanksOn is startRanks with the host of each rank; the host with the number of ranks is free.
func startRanksOn(t *testing.T, n *netlab.Net, of []int, env ...string) (wait func() []outcome) {
	t.Helper()
	ranks := len(of)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	meet, end, err := rendezvousAt(t, n, ranks)
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	outcomes := make([]outcome, ranks)
	var wg sync.WaitGroup
	for r := range ranks {
		var out bytes.Buffer
		cmd := exec.Command(exe, "-test.run=^"+test+"$")
		cmd.Env = append(os.Environ(), programOf+"=1", "GORACE=atexit_sleep_ms=0", "COHORT_BACKEND=tcp",
			"COHORT_RANK="+strconv.Itoa(r), "COHORT_SIZE="+strconv.Itoa(ranks))
		cmd.Env = append(append(cmd.Env, meet...), env...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 10*time.Second
		if err := n.Start(of[r], cmd); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			// A hanging rank prints its goroutines.
			dog := time.AfterFunc(rankPatience, func() { cmd.Process.Signal(syscall.SIGABRT) })
			defer dog.Stop()
			err := cmd.Wait()
			outcomes[r] = outcome{err, out.String()}
		})
	}
	return func() []outcome {
		wg.Wait()
		end()
		return outcomes
	}
}
