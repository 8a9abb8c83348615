package tensor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/test/leak"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// Tests with several ranks are programs: functions of the world that all ranks call. onRanks runs
// one as goroutines of the test's process. onProcesses runs one of programs as processes of the
// test's binary, on every backend that starts processes.

// programs are the programs that processes can run, by name. Test files add theirs in init
// functions.
var programs = map[string]func(world *cohort.Comm) error{}

// asProgram is the environment variable with the name of a process's program.
const asProgram = "TENSOR_TEST_PROGRAM"

var racing bool // set by race_test.go

// patience is how long a job may run. After that the test ends with a dump of all goroutines.
const patience = 4 * time.Minute

// onRanks runs a program in this process, once for each number of ranks.
func onRanks(t *testing.T, sizes []int, program func(t *testing.T, world *cohort.Comm) error) {
	t.Helper()
	for _, n := range sizes {
		t.Run(fmt.Sprintf("local%d", n), func(t *testing.T) {
			defer watch(t.Name())()
			if err := cohort.Run(context.Background(), n, must.Return(func(world *cohort.Comm) error { return program(t, world) })); err != nil {
				t.Error(err)
			}
		})
	}
}

// onProcesses runs a program as processes, once for each number of ranks: over shm, over tcp, and
// with the launchers of all MPI libraries. Starting them takes up to a second each, so a program
// should test much.
func onProcesses(t *testing.T, sizes []int, program string, env ...string) {
	t.Helper()
	if programs[program] == nil {
		t.Fatalf("there is no program %q", program)
	}
	env = append(env, asProgram+"="+program)
	if os.Getenv("GORACE") == "" {
		env = append(env, "GORACE=atexit_sleep_ms=0") // otherwise every rank sleeps for a second
	}
	each(t, "shm", sampled(sizes, 3), func(t *testing.T, n int) {
		check(t, processes(t, n, append(env, "COHORT_BACKEND=shm", "COHORT_JOB="+rand.Text())))
	})
	each(t, "tcp", sampled(sizes, 3), func(t *testing.T, n int) {
		secret, path := meet.NewSecret(), filepath.Join(t.TempDir(), "secret")
		if err := secret.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		id := &meet.Identity{Job: rand.Text(), Secret: secret, Rank: meet.Launcher, Size: n, Coordinator: true}
		door := must.Get(meet.Listen(meet.ListenConfig{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Identity: id}))
		defer meet.Serve(door)()
		check(t, processes(t, n, append(env, "COHORT_BACKEND=tcp", "COHORT_JOB="+id.Job, "COHORT_TCP_SHM=0",
			"COHORT_TCP_COORDINATOR=launcher@"+door.Addrs()[0].String(), "COHORT_SECRET_FILE="+path)))
	})
	onMPI(t, sampled(sizes, 2), env)
}

// sampled returns the sizes, or with -short the largest of them that is at most most.
func sampled(sizes []int, most int) []int {
	if !testing.Short() {
		return sizes
	}
	i := len(sizes) - 1
	for i > 0 && sizes[i] > most {
		i--
	}
	return sizes[i : i+1]
}

// onMPI is onProcesses with the launchers of MPI libraries only; ranks_mpi_test.go sets it.
var onMPI = func(*testing.T, []int, []string) {}

func each(t *testing.T, backend string, sizes []int, test func(t *testing.T, n int)) {
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%s%d", backend, n), func(t *testing.T) { test(t, n) })
	}
}

// processes starts ranks of a built-in backend and returns the errors and output of those that
// failed.
func processes(t *testing.T, n int, env []string) error {
	t.Helper()
	exe := executable(t)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), env...)
		cmd.Env = append(cmd.Env, "COHORT_RANK="+strconv.Itoa(r), "COHORT_SIZE="+strconv.Itoa(n))
		wg.Go(func() { errs[r] = output(cmd) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// executable returns the path of the test's binary.
func executable(t *testing.T) string {
	t.Helper()
	exe := must.Get(os.Executable())
	return exe
}

// output runs a command and adds its output to the error.
func output(cmd *exec.Cmd) error {
	cmd.WaitDelay = 10 * time.Second // a descendant that keeps the pipe open must not block the test
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// watch ends the process unless the function it returns is called in time.
func watch(what string) (stop func() bool) {
	return time.AfterFunc(patience, func() {
		debug.SetTraceback("all")
		panic(what + ": no end after " + patience.String())
	}).Stop
}

// asRank runs a program as one rank and returns the process's exit status.
func asRank(program string) int {
	defer watch(program)()
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	rank := world.Rank()
	body := programs[program]
	if body == nil {
		err = fmt.Errorf("there is no program %q", program)
	} else {
		err = must.Return(body)(world)
	}
	if err == nil {
		err = world.Barrier() // who leaves fails what others still want of it
	}
	if err = errors.Join(err, world.Close()); err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", rank, err)
		return 1
	}
	return 0
}

// TestMain runs as a rank if the process was started as one. It fails if tests leave goroutines
// behind.
func TestMain(m *testing.M) {
	if program := os.Getenv(asProgram); program != "" {
		os.Exit(asRank(program))
	}
	os.Exit(leak.Run(m))
}

// The helpers start ranks on every backend, and report a rank that fails.
func TestHelpersStartRanks(t *testing.T) {
	onRanks(t, []int{1, 3}, func(_ *testing.T, world *cohort.Comm) error { return counted(world) })
	onProcesses(t, []int{2}, "count")
	env := []string{asProgram + "=fail", "COHORT_BACKEND=shm", "COHORT_JOB=" + rand.Text()}
	if err := processes(t, 2, env); err == nil || !strings.Contains(err.Error(), "rank 1: on purpose") {
		t.Errorf("a rank failed, but the error is %v", err)
	}
}

func init() {
	programs["count"] = counted
	programs["fail"] = func(world *cohort.Comm) error {
		if world.Rank() == 1 {
			return errors.New("on purpose")
		}
		return nil
	}
}

// counted checks that all ranks take part.
func counted(world *cohort.Comm) error {
	n, err := cohort.AllreduceOne(world, 1, cohort.Sum)
	if err == nil && (n != world.Size() || n < 1) {
		err = fmt.Errorf("%d ranks came, want %d", n, world.Size())
	}
	return err
}
