//go:build cgo && linux

package mpi_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/need"
)

var old = regexp.MustCompile(`\) [1-4]\.`)

// withULFM has mpirun start programs that go on after losses, which Open MPI does from 5.0 on. Debian has that from 13
// on; scripts/debian13 runs these tests there.
func withULFM(t *testing.T) {
	t.Helper()
	mpirun := need.Program(t, launchers["openmpi"][0])
	if b, err := exec.Command(mpirun, "--version").CombinedOutput(); err != nil || old.Match(b) {
		t.Skipf("Open MPI goes on after losses from 5.0 on; here is %q, %v", strings.SplitN(string(b), "\n", 2)[0], err)
	}
	before := launchers["openmpi"]
	launchers["openmpi"] = append([]string{before[0], "--with-ft", "ulfm"}, before[1:]...)
	t.Cleanup(func() { launchers["openmpi"] = before })
}

// TestULFMReal is TestULFM with a library that has it, and ranks that are killed.
func TestULFMReal(t *testing.T) {
	ulfmPrograms()
	withULFM(t)
	recovers(t, func(t *testing.T, n int, program string, env ...string) ended {
		return start(t, "openmpi", n, program, append(env, realLoss+"=1", ulfm+"="+t.TempDir())...)
	})
}
