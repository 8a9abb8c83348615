//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"fmt"
	"strings"
	"testing"
)

// TestWrongProtocolIsErrInit starts ranks under a protocol that the library does not support. Each
// rank gets an error that names the right way to start, and none becomes a world of its own.
func TestWrongProtocolIsErrInit(t *testing.T) {
	hello := binary(t, "examples/hello")
	refused := func(t *testing.T, c *cluster, env []string, mpi string, want ...string) {
		t.Helper()
		status, out := c.output(t, env, "srun", "-N1", "-n3", "--overcommit", "--mpi="+mpi, hello)
		if status == 0 || strings.Contains(out, "hello from") {
			t.Errorf("--mpi=%s: status %d\n%s", mpi, status, out)
		}
		for rank := range 3 {
			for _, w := range append(want, fmt.Sprintf("init: rank %d: cannot join the job: ", rank)) {
				if n := strings.Count(out, w); n != 3 && n != 1 || n == 1 && !strings.Contains(w, "init: rank") {
					t.Errorf("--mpi=%s: %d times %q, want it once for each rank in\n%s", mpi, n, w, out)
				}
			}
		}
	}
	each(t, func(t *testing.T, c *cluster, l library) {
		for _, mpi := range []string{l.other, "none"} {
			refused(t, c, l.env, mpi, "start it with srun --mpi="+l.mpi, l.Path, "of 3")
		}
	})
	// No variable names a library, and srun uses no protocol: the library, of whichever family, sees one rank, and the
	// ranks join by variables. Installations other than the set-up's are hidden.
	bare := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LD_LIBRARY_PATH="}
	out := slurm(t).must(t, bare, "srun", "-N1", "-n3", "--overcommit", "--mpi=none", hello)
	for rank := range 3 {
		if want := fmt.Sprintf("hello from rank %d of 3", rank); strings.Count(out, want) != 1 {
			t.Errorf("want %q once in\n%s", want, out)
		}
	}
	refused(t, slurm(t), append(bare, "COHORT_BACKEND=mpi"), "none", "start it with srun --mpi=pm")
}
