//go:build cgo && linux

package jobtest

import (
	"regexp"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

var old = regexp.MustCompile(`^[1-4]\.`)

// withULFM makes mpirun start programs that survive losses. Open MPI can from 5.0 on, which Debian
// has from 13 on; scripts/debian13 runs these tests there.
func withULFM(t *testing.T) {
	t.Helper()
	if lib := mpitest.Of(t, mpifind.OpenMPI).Library; old.MatchString(lib.Version) {
		t.Skipf("Open MPI has ULFM from 5.0 on; this is %v", lib)
	}
	ft = []string{"--with-ft", "ulfm"}
	t.Cleanup(func() { ft = nil })
}

// TestULFMReal is TestRecoveryWithStandIn with a library that has ULFM, and ranks that are killed.
func TestULFMReal(t *testing.T) {
	ulfmPrograms()
	withULFM(t)
	recovers(t, func(t *testing.T, n int, program string, env ...string) ended {
		return start(t, "openmpi", n, program, append(env, realLoss+"=1", ulfm+"="+t.TempDir())...)
	})
}
