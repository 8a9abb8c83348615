//go:build !cohort_noshm && !cohort_notcp

package cohort_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

const aSecret = "COHORT_SECRET=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// ranksProgram builds a program without cgo, whose ranks say where they are.
func ranksProgram(t *testing.T, tags string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ranks")
	build := exec.Command("go", "build", "-trimpath", "-tags", tags, "-o", program, "./internal/pmi/testdata/ranks")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return program
}

// command returns a command that ends before the test is given up.
func command(t *testing.T, env []string, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// TestStaticProgramUnderLaunchers starts a program that was built without cgo under MPI launchers: the ranks find each
// other through PMI, or by the variables that number them, and load no MPI library.
func TestStaticProgramUnderLaunchers(t *testing.T) {
	hydra, openMPI := need.Program(t, "mpiexec.hydra"), need.Program(t, "mpirun.openmpi")
	program := ranksProgram(t, "")
	asRoot := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	run := func(t *testing.T, env []string, args ...string) (string, error) {
		out, err := command(t, append(asRoot, env...), args[0], args[1:]...).CombinedOutput()
		return string(out), err
	}
	for _, c := range []struct {
		name, backend string
		env, args     []string
	}{
		{"Hydra", "tcp", nil, []string{hydra}},
		{"Hydra, shm", "shm", []string{"COHORT_BACKEND=shm"}, []string{hydra}},
		{"Hydra, by address", "tcp", []string{"COHORT_BACKEND=tcp"}, []string{hydra, "-pmi-port"}},
		{"Open MPI", "shm", nil, []string{openMPI, "--oversubscribe"}},
		{"Open MPI, tcp", "tcp", []string{"COHORT_BACKEND=tcp", aSecret}, []string{openMPI, "--oversubscribe"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(t, c.env, append(c.args, "-n", "3", program)...)
			for r := range 3 {
				if want := fmt.Sprintf("rank %d of 3 on %s, sum 6\n", r, c.backend); !strings.Contains(out, want) {
					t.Errorf("%v: want %q in\n%s", err, want, out)
				}
			}
		})
	}
	t.Run("joined before", func(t *testing.T) {
		out, err := run(t, []string{"COHORT_BACKEND=tcp"}, hydra, "-n", "2", "sh", "-c", program+"; exec "+program)
		if err == nil || strings.Count(out, "sum 3") != 2 || !strings.Contains(out, "has this process joined before?") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("the launcher dies", func(t *testing.T) {
		dir := t.TempDir()
		for r := range 3 {
			if err := unix.Mkfifo(filepath.Join(dir, fmt.Sprint(r)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := command(t, nil, hydra, "-n", "3", "sh", "-c",
			`if test $PMI_RANK = 2; then kill -KILL $PPID; fi; exec "$0" >"$1/$PMI_RANK" 2>&1`, program, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill() // it may wait for its proxy, which is dead
			_ = cmd.Wait()
		}()
		for r := range 3 {
			b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(r))) // until the rank ends
			text := string(b)
			if want := fmt.Sprintf("init: rank %d: cannot join the job: PMI-1 (PMI_FD=", r); err != nil || !strings.HasPrefix(text, want) || !strings.Contains(text, "has closed the connection") {
				t.Errorf("%q, %v, want %q", text, err, want)
			}
		}
	})
	t.Run("Open MPI, with libpmix", func(t *testing.T) {
		if testing.Short() {
			t.Skip("left out with -short: builds a program with the tag pmix; make test-all runs it")
		}
		out, err := run(t, nil, openMPI, "--oversubscribe", "-n", "3", ranksProgram(t, "pmix"))
		if err != nil || strings.Count(out, " of 3 on tcp, sum 6\n") != 3 {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("no secret", func(t *testing.T) {
		if testing.Short() {
			t.Skip("left out with -short: a third job of mpirun; make test-all runs it")
		}
		out, err := run(t, []string{"COHORT_BACKEND=tcp"}, openMPI, "--oversubscribe", "-n", "2", "sh", "-c", program+"; sleep 1") // mpirun ends the others with the first
		for r := range 2 {
			if want := fmt.Sprintf("init: rank %d: cannot join the job: ", r); err != nil || !strings.Contains(out, want) || !strings.Contains(out, "openssl rand -hex 32") {
				t.Errorf("%v: want %q in\n%s", err, want, out)
			}
		}
	})
}

// TestRanksByVariables starts ranks with the variables of launchers that the machine does not have.
func TestRanksByVariables(t *testing.T) {
	program := ranksProgram(t, "")
	// start starts one process for each list of variables. The processes see no variables of a launcher that has started
	// this test.
	start := func(t *testing.T, all ...[]string) (ranks []*rankProcess) {
		t.Helper()
		for _, env := range all {
			r := &rankProcess{cmd: command(t, nil, program), ended: make(chan struct{})}
			r.cmd.Env = append(env, "PATH="+os.Getenv("PATH"))
			r.cmd.Stdout, r.cmd.Stderr = &r.text, &r.text
			if err := r.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() {
				defer close(r.ended)
				_ = r.cmd.Wait() // the text says more
			}()
			ranks = append(ranks, r)
		}
		return ranks
	}
	pals := func(launch string, rank, size int) []string {
		return []string{"PALS_APID=" + launch, fmt.Sprint("PALS_RANKID=", rank), fmt.Sprint("PALS_NRANKS=", size),
			fmt.Sprint("PALS_LOCAL_RANKID=", rank), fmt.Sprint("PALS_LOCAL_SIZE=", size)}
	}
	jsrun := func(launch string, rank, size int) []string {
		return []string{"LSB_JOBID=88", "PMIX_NAMESPACE=" + launch, fmt.Sprint("JSM_NAMESPACE_RANK=", rank), fmt.Sprint("JSM_NAMESPACE_SIZE=", size),
			fmt.Sprint("JSM_NAMESPACE_LOCAL_RANK=", rank), fmt.Sprint("JSM_NAMESPACE_LOCAL_SIZE=", size)}
	}
	flux := func(launch string, rank, size int) []string {
		return []string{"FLUX_JOB_ID=" + launch, fmt.Sprint("FLUX_TASK_RANK=", rank), fmt.Sprint("FLUX_JOB_SIZE=", size),
			fmt.Sprint("FLUX_TASK_LOCAL_ID=", rank), "FLUX_JOB_NNODES=1"}
	}
	unique := fmt.Sprint(os.Getpid())
	for name, launcher := range map[string]func(launch string, rank, size int) []string{"PALS": pals, "jsrun": jsrun, "Flux": flux} {
		t.Run(name, func(t *testing.T) { // two launches of one job
			a, b := unique+"a", unique+"b"
			for i, r := range start(t, launcher(a, 0, 2), launcher(b, 1, 2), launcher(a, 1, 2), launcher(b, 0, 2)) {
				if text, want := r.end(), " of 2 on shm, sum 3\n"; !strings.HasSuffix(text, want) {
					t.Errorf("process %d: %q, want %q", i, text, want)
				}
			}
		})
	}
	// The job goes on with the first rank 0. It waits for the missing rank, until it is interrupted.
	t.Run("rank 0 starts twice", func(t *testing.T) {
		ranks := start(t, pals(unique+"c", 0, 2), pals(unique+"c", 0, 2))
		other := ranks[0]
		select {
		case <-ranks[0].ended:
			other = ranks[1]
		case <-ranks[1].ended:
		}
		other.interrupt(t)
		if text := ranks[0].end() + ranks[1].end(); !strings.Contains(text, "another process is rank 0 of job ") || !strings.Contains(text, "rank 1 did not join") {
			t.Error(text)
		}
	})
	// The next jobs cannot start, and no rank waits for those that are missing.
	t.Run("rank 1 starts twice", func(t *testing.T) {
		ranks := start(t, pals(unique+"d", 0, 3), pals(unique+"d", 1, 3), pals(unique+"d", 1, 3))
		for i, r := range ranks {
			if text := r.end(); !strings.Contains(text, "another process is rank 1 already") {
				t.Errorf("process %d: %s", i, text)
			}
		}
	})
	t.Run("sizes that differ", func(t *testing.T) {
		ranks := start(t, pals(unique+"e", 0, 3), pals(unique+"e", 2, 4))
		for i, r := range append(ranks, start(t, pals(unique+"e", 1, 3))...) {
			if text := r.end(); !strings.Contains(text, "rank 2 was started for 4 ranks, rank 0 for 3") {
				t.Errorf("process %d: %s", i, text)
			}
		}
	})
}

// A rankProcess is a rank of a job, or wants to be.
type rankProcess struct {
	cmd   *exec.Cmd
	text  bytes.Buffer // what it writes
	ended chan struct{}
}

// end waits until the process has ended, and returns what it has written.
func (r *rankProcess) end() string {
	<-r.ended
	return r.text.String()
}

func (r *rankProcess) interrupt(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Errorf("%v\n%s", err, r.end())
	}
}
