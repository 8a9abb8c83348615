//go:build cgo && linux && !cohort_nompi

package npb_test

import (
	"reflect"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// Every kernel gives the same bits over each MPI library as on shm, when reductions have a fixed order.
func TestKernelsHaveSameBitsOverMPI(t *testing.T) {
	for _, kernel := range kernels(t) {
		for _, class := range classes() {
			for _, ranks := range []int{2, 4} {
				if ranks > 2 && testing.Short() {
					continue
				}
				want := onShm(t, kernel, class, ranks)
				mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
					cmd := l.Command(ranks, program(t, kernel), "-class", class, "-json")
					cmd.Env = append(cmd.Env, "COHORT_DETERMINISTIC=1")
					if got := report(t, cmd); got.Backend != "mpi" || got.Ranks != ranks || !reflect.DeepEqual(got.Checks, want.Checks) {
						t.Errorf("%s class %s: %d ranks on %s give %+v, %d on shm %+v", kernel, class, got.Ranks, got.Backend, got.Checks, ranks, want.Checks)
					}
				})
			}
		}
	}
}
