//go:build cgo && linux && !cohort_nompi

package tensor

import (
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

func init() {
	onMPI = func(t *testing.T, sizes []int, env []string) {
		t.Helper()
		test := t.Name() // with -short about half of the tests run with each library
		t.Run("mpi", func(t *testing.T) {
			mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
				if !mpitest.Turn(len(test), l.Library.Vendor) {
					return
				}
				each(t, "", sizes, func(t *testing.T, n int) {
					cmd := l.Command(n, executable(t))
					cmd.Env = append(append(cmd.Env, env...), "COHORT_BACKEND=mpi")
					check(t, output(cmd))
				})
			})
		})
	}
}
