package mpitest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// Launcher is the launcher of an MPI library.
type Launcher struct {
	Library mpifind.Library
	command string
	args    func(n int) []string // "-n", the number, and further options
	env     []string
}

func launcherOf(t testing.TB, lib mpifind.Library) Launcher {
	t.Helper()
	command, args, err := mpifind.Mpiexec(lib)
	if err != nil {
		need.Missing(t, "%v", err)
	}
	l := Launcher{lib, command, args, []string{
		"COHORT_MPI_LIB=" + lib.Path, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	}}
	if lib.Runtime == mpifind.MPICH {
		l.env = append(l.env, Yielding(t)...)
	}
	return l
}

// Args returns the launcher and its options for n ranks, which the program and its arguments follow.
func (l Launcher) Args(n int) []string { return append([]string{l.command}, l.args(n)...) }

// Start returns the launcher and its options without the number of ranks.
func (l Launcher) Start() []string { return append([]string{l.command}, l.args(1)[2:]...) }

// Env returns the variables that jobs of the launcher need. COHORT_MPI_LIB is one of them: the machine may
// have other libraries that a rank would find first.
func (l Launcher) Env() []string { return l.env[:len(l.env):len(l.env)] }

// Command returns the command that starts a program as n ranks.
func (l Launcher) Command(n int, program ...string) *exec.Cmd {
	args := append(l.Args(n), program...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), l.env...)
	// A process that keeps the pipe open must not keep the test waiting.
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
