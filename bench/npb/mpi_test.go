//go:build cgo && linux && !cohort_nompi

package npb_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// Every kernel gives the same bits over each MPI library as alone, without COHORT_DETERMINISTIC. With -short
// each kernel runs with one of two libraries, in turn.
func TestKernelsHaveSameBitsOverMPI(t *testing.T) {
	for i, kernel := range kernels(t) {
		for _, class := range classes() {
			want := alone(t, kernel, class)
			mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
				if !mpitest.Turn(i, l.Library.Vendor) {
					return
				}
				for _, ranks := range []int{2, 4} {
					if ranks == 2 || !testing.Short() {
						sameBits(t, report(t, l.Command(ranks, program(t, kernel), "-class", class, "-json")), ranks, "mpi", want)
					}
				}
			})
		}
	}
}
