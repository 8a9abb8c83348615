package ddp

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/train"

	"github.com/cohort-hpc/cohort"
)

// TestMain trains as a rank of a job, in place of the tests, if the environment says so.
func TestMain(m *testing.M) {
	switch os.Getenv("DDP_TEST") {
	case "":
		os.Exit(m.Run())
	case "train":
		cohort.Main(func(_ context.Context, world *cohort.Comm) error {
			values, _, err := training{}.run(world)
			fmt.Printf("%x\n", fmt.Sprint(values))
			return err
		})
	case "die":
		cohort.Main(func(_ context.Context, world *cohort.Comm) error {
			_, _, err := training{epochs: 1 << 20, prepare: func(_ *Trainer, loop *train.Loop) {
				loop.OnStep("die", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
					if world.Rank() == 1 && loop.LoopStep == 5 {
						self, err := os.FindProcess(os.Getpid())
						if err != nil {
							return err
						}
						return self.Kill()
					}
					return nil
				})
			}, dataset: func(t *Trainer, b backends.Backend) train.Dataset { return t.Scatter(points(b, 96, 24)) }}.run(world)
			return err
		})
	}
}

// processes runs a job of n processes over shared memory, and returns what each has printed and how it has ended.
func processes(t *testing.T, n int, what string) (out []string, failed []error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	id := rand.Text()
	text := make([]bytes.Buffer, n)
	out, failed = make([]string, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		cmd := exec.CommandContext(ctx, exe)
		cmd.WaitDelay = 10 * time.Second
		cmd.Env = append(os.Environ(), "DDP_TEST="+what, "COHORT_BACKEND=shm", "COHORT_JOB="+id,
			fmt.Sprintf("COHORT_SIZE=%d", n), fmt.Sprintf("COHORT_RANK=%d", r))
		cmd.Stdout, cmd.Stderr = &text[r], &text[r]
		all.Go(func() { failed[r] = cmd.Run() })
	}
	all.Wait()
	for r := range n {
		out[r] = text[r].String()
	}
	if ctx.Err() != nil {
		t.Fatalf("the job did not end:\n%s", strings.Join(out, "\n"))
	}
	return out, failed
}

// Processes end with the bits of as many goroutines.
func TestProcessesTrainAsGoroutinesDo(t *testing.T) {
	got, err := training{}.each(t, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x\n", fmt.Sprint(got[0]))
	out, failed := processes(t, 2, "train")
	for r := range out {
		if failed[r] != nil || out[r] != want {
			t.Errorf("rank %d: %v\n%s\nwant\n%s", r, failed[r], out[r], want)
		}
	}
}

// A rank that is killed in mid-training is an error on the others, which names it.
func TestKilledRankIsNamed(t *testing.T) {
	out, failed := processes(t, 3, "die")
	for _, r := range []int{0, 2} {
		if failed[r] == nil || !strings.Contains(out[r], "peer lost") || !strings.Contains(out[r], "rank 1") {
			t.Errorf("rank %d: %v\n%s", r, failed[r], out[r])
		}
	}
	if failed[1] == nil || out[1] != "" {
		t.Errorf("rank 1 was not killed: %v\n%s", failed[1], out[1])
	}
}
