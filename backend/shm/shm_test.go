//go:build linux

package shm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// The tests of this package run programs of several processes: the test binary
// starts itself again, once for each rank, with the name of a program below.
var programs = map[string]func(c backend.Comm) error{}

// outsiders are programs that are no ranks.
var outsiders = map[string]func(address string) error{}

func TestMain(m *testing.M) {
	if name := os.Getenv("SHM_TEST_OUTSIDER"); name != "" {
		if err := outsiders[name](os.Getenv("SHM_TEST_ADDRESS")); err != nil {
			fmt.Fprintln(os.Stderr, "outsider:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	name := os.Getenv("SHM_TEST_PROGRAM")
	if name == "" {
		os.Exit(m.Run())
	}
	rank, _ := strconv.Atoi(os.Getenv("SHM_TEST_RANK"))
	size, _ := strconv.Atoi(os.Getenv("SHM_TEST_SIZE"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	silence, _ := time.ParseDuration(os.Getenv("SHM_TEST_HEARTBEAT"))
	join := Open
	if os.Getenv("SHM_TEST_NOCOPY") != "" {
		join = openWithoutCopies
	}
	c, err := join(ctx, backend.Config{Rank: rank, Size: size, Job: os.Getenv("SHM_TEST_JOB"), Heartbeat: silence})
	if err == nil {
		err = must.Return(programs[name])(c)
		c.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", rank, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// openWithoutCopies is Open where the kernel does not copy between processes: long messages go through the rings.
func openWithoutCopies(ctx context.Context, cfg backend.Config) (backend.Comm, error) {
	meeting := node.Config{Job: cfg.Job, Name: cfg.Job, Rank: cfg.Rank}
	for r := range cfg.Size {
		meeting.Ranks = append(meeting.Ranks, r)
	}
	n, err := node.Join(ctx, meeting)
	if err != nil {
		return nil, err
	}
	n.Copies = false
	return start(n, cfg)
}

// rounds is how often a program repeats something: SHM_TEST_ROUNDS, or the number given.
func rounds(n int) int {
	if r, err := strconv.Atoi(os.Getenv("SHM_TEST_ROUNDS")); err == nil {
		return r
	}
	return n
}

var jobs int

// run runs a program on n ranks and returns how each ended.
func run(t testing.TB, name string, n int) []error {
	t.Helper()
	jobs++
	job := fmt.Sprintf("%d-%d-%s", os.Getpid(), jobs, t.Name())
	cmds, errs := make([]*exec.Cmd, n), make([]error, n)
	for r := range cmds {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "SHM_TEST_PROGRAM="+name, "SHM_TEST_JOB="+job,
			fmt.Sprintf("SHM_TEST_RANK=%d", r), fmt.Sprintf("SHM_TEST_SIZE=%d", n))
		c.Stderr, c.Stdout = os.Stderr, os.Stdout
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[r] = c
	}
	for r, c := range cmds {
		if err := c.Wait(); err != nil {
			errs[r] = fmt.Errorf("rank %d of %s: %w", r, name, err)
		}
	}
	return errs
}

// launch is run, and every rank must end well.
func launch(t testing.TB, name string, n int) {
	t.Helper()
	for _, err := range run(t, name, n) {
		if err != nil {
			t.Error(err)
		}
	}
}
