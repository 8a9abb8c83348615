//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// asProgram makes this test binary one of the programs that jobs run.
const asProgram = "TEST_SLURM_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(asProgram); name != "" {
		os.Exit(programs[name]())
	}
	status := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	os.RemoveAll(binaries.dir)
	os.Exit(status)
}

// cluster is a Slurm of two nodes, n01 and n02, which are both this machine. It stops when this
// process ends, in whatever way.
type cluster struct {
	once sync.Once
	dir  string
	hold *exec.Cmd
	end  io.Closer // its standard input
	err  error
}

// shared is the cluster of all tests.
var shared cluster

// script starts a Slurm.
var script = filepath.Join("..", "..", "..", "scripts", "slurm")

// installed skips a test with -short, or on a machine without Slurm.
func installed(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short: jobs under Slurm; make test-all runs it")
	}
	for _, name := range []string{"munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scontrol"} {
		need.Program(t, name)
	}
}

// slurm returns the cluster, which the first test starts.
func slurm(t *testing.T) *cluster {
	t.Helper()
	installed(t)
	shared.once.Do(func() { shared.err = shared.start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return &shared
}

func (c *cluster) start() error {
	dir, err := os.MkdirTemp("", "slurm") // short, for the names of sockets
	if err != nil {
		return err
	}
	c.dir = dir
	var errs bytes.Buffer
	c.hold = exec.Command(script, "hold", c.dir, "2")
	c.hold.Stderr = &errs
	c.hold.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for this process, whose end is enough
	out, err := c.hold.StdoutPipe()
	if err != nil {
		return err
	}
	if c.end, err = c.hold.StdinPipe(); err != nil {
		return err
	}
	if err := c.hold.Start(); err != nil {
		return err
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		err := c.hold.Wait()
		c.dir = ""
		return errors.Join(fmt.Errorf("scripts/slurm hold: %v\n%s", err, &errs), os.RemoveAll(dir))
	}
	return nil
}

func (c *cluster) stop() error {
	if c.dir == "" {
		return nil
	}
	c.end.Close()
	if err := c.hold.Wait(); err != nil {
		return fmt.Errorf("scripts/slurm hold: %v\n%v", err, c.hold.Stderr)
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		return fmt.Errorf("scripts/slurm has left something in %s", c.dir)
	}
	return nil
}

// limit is how long a wait may take before it counts as a hang.
const limit = 100 * time.Second

// command returns a command that uses the cluster.
func (c *cluster) command(t *testing.T, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	// A job must not see variables of a job that this process may be in.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SLURM") && !strings.HasPrefix(v, "PMI") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, "SLURM_CONF="+filepath.Join(c.dir, "slurm.conf")), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// output runs a command and returns its status and all it wrote.
func (c *cluster) output(t *testing.T, env []string, name string, args ...string) (status int, out string) {
	t.Helper()
	cmd := c.command(t, env, name, args...)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// must runs a command that has to succeed, and returns what it wrote to standard
// output.
func (c *cluster) must(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := c.command(t, env, name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, out, &errs)
	}
	return string(out)
}

// library is an MPI library and the way that srun has to start its programs.
type library struct {
	mpifind.Library
	mpi, other string   // the value of --mpi, and one that is wrong
	env        []string // for jobs
}

// each runs a test with both MPI libraries that scripts/setup installs.
func each(t *testing.T, test func(t *testing.T, c *cluster, l library)) {
	c := slurm(t)
	mpitest.Each(t, func(t *testing.T, launcher mpitest.Launcher) {
		l := library{Library: launcher.Library, env: []string{"COHORT_MPI_LIB=" + launcher.Library.Path}}
		switch l.Vendor {
		case "MPICH":
			l.mpi, l.other = "pmi2", "pmix"
			l.env = append(l.env, mpitest.Yielding(t)...)
		case "Open MPI":
			l.mpi, l.other = "pmix", "pmi2"
		default:
			t.Skipf("%v: which --mpi of srun it takes is not known; MPICH and Open MPI are tested", l)
		}
		test(t, c, l)
	})
}

// binaries are programs of this repository, built when they are first asked for.
var binaries struct {
	sync.Mutex
	dir string
}

// binary builds a program: sddp/cmd/sddp, examples/hello.
func binary(t *testing.T, program string) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	if binaries.dir == "" {
		dir, err := os.MkdirTemp("", "slurmtest")
		if err != nil {
			t.Fatal(err)
		}
		binaries.dir = dir
	}
	file := filepath.Join(binaries.dir, filepath.Base(program))
	if _, err := os.Stat(file); err != nil {
		build := exec.Command("go", "build", "-trimpath", "-o", file, "./"+program)
		build.Dir = filepath.Join("..", "..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build, err, out)
		}
	}
	return file
}

// self returns this binary, which is a program where env is set.
func self(t *testing.T, program string) (file string, env []string) {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return file, []string{asProgram + "=" + program}
}
