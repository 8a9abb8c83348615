package mpitest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/need"
)

// Launcher is the launcher of an MPI library.
type Launcher struct {
	Library mpifind.Library
	command string
	args    func(n int) []string
	env     []string
}

// Each runs a test with the launcher of every MPI library of this machine. It
// needs one, and two where nothing may be missing.
func Each(t *testing.T, test func(t *testing.T, l Launcher)) {
	t.Helper()
	n := 0
	for _, lib := range mpifind.Find(os.LookupEnv) {
		command, args, err := mpifind.Mpiexec(lib)
		if lib.Problem != "" || err != nil {
			continue
		}
		n++
		t.Run(lib.Vendor, func(t *testing.T) {
			l := Launcher{lib, command, args, []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}}
			if lib.Vendor == "MPICH" {
				l.env = append(l.env, Yielding(t)...)
			}
			test(t, l)
		})
	}
	if n == 0 || n < 2 && need.Required() {
		need.Missing(t, "%d MPI libraries with launchers; scripts/setup installs two", n)
	}
}

// Command returns what starts a program as n ranks. The library is not named: the
// ranks find the one of the launcher.
func (l Launcher) Command(n int, program ...string) *exec.Cmd {
	cmd := exec.Command(l.command, append(l.args(n), program...)...)
	cmd.Env = append(os.Environ(), l.env...)
	// A process that keeps the pipe open must not keep the test waiting.
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
