package hybrid

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/pool"
)

// asRank makes the test binary a rank: it says what it found, in a line with its rank.
const asRank = "HYBRID_TEST_RANK"

// failing is the last rank's part where a step is to fail.
const failing = "fail"

func rankMain(what string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := rankStarts(ctx, what)
	if err != nil {
		fmt.Printf("error %v\n", err)
		return 1
	}
	return 0
}

func rankStarts(ctx context.Context, what string) error {
	cfg := &Config{Threads: 2, Summary: os.Stdout}
	cfg.Workspace = func(worker int) (any, error) {
		if what == failing+os.Getenv("COHORT_RANK")+os.Getenv("PMI_RANK")+os.Getenv("OMPI_COMM_WORLD_RANK") {
			return nil, errTest
		}
		return worker, nil
	}
	e, err := Start(ctx, cfg)
	if err != nil {
		return err
	}
	rank := e.World.Rank()
	mine := make([]int64, e.Pool.Workers())
	err = pool.ForEachWorker(e.Pool, func(worker int) error {
		mine[worker] = int64(100*rank + e.Workspaces.At(worker).(int))
		return nil
	})
	total, err2 := cohort.AllreduceOne(e.World, mine[0]+mine[1], cohort.Sum)
	fmt.Printf("rank %d of %d node %d of %d place %v workers %d sum %d\n", rank, e.World.Size(),
		e.Node.Rank(), e.Node.Size(), e.LocalRank < e.LocalSize && e.LocalSize <= e.Node.Size(), e.Pool.Workers(), total)
	return errors.Join(err, err2, e.Close())
}

// launches has ways to start n ranks of this binary, each a process: what they wrote,
// and the error of those that failed.
func launches(t *testing.T, test func(t *testing.T, launch func(n int, what string) (string, error))) {
	exe := must.Get(os.Executable())
	t.Run("shm", func(t *testing.T) {
		test(t, func(n int, what string) (string, error) {
			id := rand.Text()
			outs, errs := make([]strings.Builder, n), make([]error, n)
			var wg sync.WaitGroup
			for r := range n {
				cmd := exec.Command(exe)
				cmd.Env = append(os.Environ(), asRank+"="+what, "COHORT_BACKEND=shm", "COHORT_JOB="+id,
					"COHORT_RANK="+strconv.Itoa(r), "COHORT_SIZE="+strconv.Itoa(n))
				cmd.Stdout, cmd.Stderr = &outs[r], &outs[r]
				wg.Go(func() { errs[r] = cmd.Run() })
			}
			wg.Wait()
			all := ""
			for r := range outs {
				all += outs[r].String()
			}
			return all, errors.Join(errs...)
		})
	})
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		test(t, func(n int, what string) (string, error) {
			cmd := l.Command(n, exe)
			cmd.Env = append(cmd.Env, asRank+"="+what)
			out, err := cmd.CombinedOutput()
			return string(out), err
		})
	})
}

// Ranks that are processes find each other under every launcher.
func TestProcessesStartUnderEveryLauncher(t *testing.T) {
	launches(t, func(t *testing.T, launch func(int, string) (string, error)) {
		const n = 3
		out, err := launch(n, "well")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for r := range n {
			// The sum of 100 r + worker over three ranks and two workers.
			want := fmt.Sprintf("rank %d of 3 node %d of 3 place true workers 2 sum %d", r, r, 2*(0+100+200)+3*1)
			if !slices.Contains(lines, want) {
				t.Errorf("there is no line %q in\n%s", want, out)
			}
		}
		if strings.Count(out, "3 ranks on 1 node: ") != 1 || !strings.Contains(out, "2 threads per rank, not pinned") {
			t.Errorf("there is no summary, or more than one:\n%s", out)
		}
	})
}

// If a step fails on one process, all end and name the rank and the reason.
func TestProcessFailureEndsAllRanks(t *testing.T) {
	launches(t, func(t *testing.T, launch func(int, string) (string, error)) {
		out, err := launch(3, failing+"1")
		if err == nil {
			t.Fatalf("all went well:\n%s", out)
		}
		if n := strings.Count(out, "error hybrid: workspaces: rank 1: "); n < 1 || strings.Contains(out, "ranks on 1 node") || strings.Contains(out, "sum") {
			t.Errorf("%d ranks said that rank 1 failed:\n%s", n, out)
		}
	})
}
