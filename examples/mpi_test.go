//go:build cgo && linux && !cohort_nompi

package examples

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpitest"
)

// TestExamplesOverMPI runs every example under the launcher of every MPI library, and with cohort
// run over it: they print what they print on shm.
func TestExamplesOverMPI(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		for _, e := range examples {
			t.Run(e.name, func(t *testing.T) {
				example := program(t, e.name)
				for n := 1; n <= 3; n++ {
					if n > 2 && e.name == "heat2d" && l.Library.Vendor == "MPICH" {
						break // MPICH's waiting ranks do not give way: with fewer processors each of 2831 steps takes milliseconds
					}
					check(t, untagged(e.lines(n), "mpi"), l.Command(n, example))
				}
				tagged := e.lines(2)
				for i := range tagged {
					tagged[i] = strings.ReplaceAll(tagged[i], "shm", "mpi")
				}
				run := exec.Command(program(t, "cohort"), "run", "--backend", "mpi", "-n", "2", example)
				run.Env = append(os.Environ(), "COHORT_MPI_LIB="+l.Library.Path)
				check(t, tagged, run)
			})
		}
	})
}
