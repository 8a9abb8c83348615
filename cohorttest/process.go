package cohorttest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// jobVariable holds the job of a process that is a rank, as JSON.
const jobVariable = "COHORTTEST_JOB"

// Become runs a rank and then exits, if this process was started as a rank. Otherwise
// it returns. Test, Some, Bits and Faults begin with it. A test that does something
// else before them calls Become first.
func Become() {
	if job := os.Getenv(jobVariable); job != "" {
		os.Exit(rankMain(job))
	}
}

// rankMain runs a rank in this process. The exit status is 0 unless the rank could
// not complete its scenarios.
func rankMain(text string) int {
	var job Job
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", jobVariable, err)
		return 2
	}
	before := snapshot()
	ctx := context.Background()
	if slices.Contains(job.Scenarios, contextEnds) { // it runs alone
		ctx, job.end = context.WithCancel(ctx)
	}
	world, err := cohort.Init(ctx, &cohort.Config{Deterministic: job.Deterministic})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	rank := world.Rank()
	again := func(when string) error { // a process joins a job once
		if w, err := cohort.Init(context.Background(), nil); w != nil || !errors.Is(err, cohort.ErrInit) {
			return fmt.Errorf("second Init %s: %v, want ErrInit", when, err)
		}
		return nil
	}
	twice := again("while the world is open")
	if world.Caps().Library != "" {
		before.files = leak.Files() // a library need not close what it opens at start-up
	}
	err = job.Run(world)
	if e := world.Close(); e != nil && !errors.Is(e, cohort.ErrPeerLost) {
		err = errors.Join(err, e)
	}
	if e := world.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("second Close: %w", e))
	}
	if world.Size() > 1 {
		twice = errors.Join(twice, again("after Close"))
	}
	err = errors.Join(err, twice)
	world = nil
	left := ""
	if !stuckInLibrary.Load() {
		left = before.left()
	}
	if !windowsAbandoned.Load() && !jobFailed.Load() {
		left += sharedMappings()
	}
	if left != "" {
		err = errors.Join(err, fmt.Errorf("left behind after Close:\n%s", left))
	}
	if jobFailed.Load() {
		err = errors.Join(err, job.awaitSurvivors(), errors.New("a rank has failed"))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", rank, err)
		return 1
	}
	return 0
}

// jobFailed is set if a rank has failed under a library. Nobody finalizes it then, so it keeps its memory. The launcher
// ends all ranks once one has ended, and MPICH's may report the status of any.
var jobFailed atomic.Bool

// awaitSurvivors waits until the ranks that the last scenario does not lose have ended it.
func (j *Job) awaitSurvivors() error {
	name := j.Scenarios[len(j.Scenarios)-1]
	s, _ := find(name)
	for rank := 0; rank < j.Ranks; {
		ranks, err := j.reports()
		if err != nil {
			return err
		}
		for rank < j.Ranks && (s.lost(rank, j.Ranks) || ranks[rank][name].Ended) {
			rank++
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Environ returns the environment variables with which a process of the test's binary
// becomes a rank of the job. The launcher adds those that say which rank it is.
func (j *Job) Environ() []string {
	b, err := json.Marshal(j)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return []string{jobVariable + "=" + string(b)}
}

// Processes launches every rank as a process that runs the test's binary with the
// same test. There, [Test], [Some], [Bits] and [Faults] act as the rank and exit.
type Processes struct {
	Backend string   // COHORT_BACKEND of the ranks
	Env     []string // more variables, NAME=value

	// Start starts the process of a rank, for example on another host. nil means
	// cmd.Start.
	Start func(rank int, cmd *exec.Cmd) error
}

// Name implements [Launcher].
func (p Processes) Name() string { return p.Backend }

// Launch implements [Launcher].
func (p Processes) Launch(t testing.TB, job *Job) error {
	t.Helper()
	id := rand.Text()
	start := p.Start
	if start == nil {
		start = func(_ int, cmd *exec.Cmd) error { return cmd.Start() }
	}
	errs := make([]error, job.Ranks)
	var wg sync.WaitGroup
	for rank := range job.Ranks {
		var stderr strings.Builder
		cmd, err := rankCommand(t, job, nil, append([]string{"COHORT_BACKEND=" + p.Backend, "COHORT_JOB=" + id,
			"COHORT_RANK=" + strconv.Itoa(rank), "COHORT_SIZE=" + strconv.Itoa(job.Ranks)}, p.Env...))
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = &stderr, &stderr
		wg.Go(func() {
			err := start(rank, cmd)
			if err == nil {
				err = cmd.Wait()
			}
			if err != nil {
				errs[rank] = fmt.Errorf("rank %d: %w\n%s", rank, err, stderr.String())
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// rankCommand is the test's binary with the same test, in which it becomes a rank, after the words of a launcher.
func rankCommand(t testing.TB, job *Job, words, env []string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	words = append(words, exe, "-test.run=^"+test+"$")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), job.Environ()...)
	if racing && os.Getenv("GORACE") == "" {
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // otherwise every rank sleeps a second
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = 10 * time.Second // a process that keeps the pipe open must not keep the test waiting
	return cmd, nil
}
