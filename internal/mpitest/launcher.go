package mpitest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// Launcher is the launcher of an MPI library.
type Launcher struct {
	Library mpifind.Library
	command string
	args    func(n int) []string
	env     []string
}

// Each runs a test with the launcher of every MPI library of this machine. Without
// one it is skipped; where COHORT_REQUIRE_TOOLS=1 says that the set-up has
// installed two, it fails without them.
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
	if require := os.Getenv("COHORT_REQUIRE_TOOLS") == "1"; require && n < 2 {
		t.Fatalf("%d MPI libraries with launchers, want the two that scripts/setup installs", n)
	} else if n == 0 {
		t.Skip("no MPI library with a launcher here; scripts/setup installs two")
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
