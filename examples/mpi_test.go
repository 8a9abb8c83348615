//go:build cgo && linux && !cohort_nompi

package examples

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// Every example runs under the launcher of every MPI library, and under cohort run with it. The
// output is that on shm. With -short hello runs on one and two ranks. The examples with threads, windows or Alltoall run
// on two, each with one of two libraries in turn.
func TestExamplesOverMPI(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		for i, e := range examples {
			all := e.name == "hello" || !testing.Short()
			if !all && !mpitest.Turn(i, l.Library.Vendor) {
				continue
			}
			t.Run(e.name, func(t *testing.T) {
				if !all && !slices.Contains([]string{"fft3d", "window", "hybrid"}, e.name) {
					t.Skip("left out with -short: an example without threads, windows or Alltoall over MPI; make test-all runs it")
				}
				example := program(t, e.name)
				for n := 1; n <= 3; n++ {
					if n != 2 && !all || n == 3 && testing.Short() {
						continue
					}
					cmd := l.Command(n, append([]string{example}, args(e.name)...)...)
					if n == 1 {
						cmd.Env = append(cmd.Env, "COHORT_BACKEND=mpi") // alone it would be local
					}
					check(t, untagged(e.lines(n), "mpi"), cmd)
				}
				if !all {
					return
				}
				tagged := e.lines(2)
				for i := range tagged {
					tagged[i] = strings.ReplaceAll(tagged[i], "shm", "mpi")
				}
				run := exec.Command(program(t, "cohort"), append([]string{"run", "--backend", "mpi", "-n", "2", example}, args(e.name)...)...)
				run.Env = append(os.Environ(), "COHORT_MPI_LIB="+l.Library.Path)
				check(t, tagged, run)
			})
		}
	})
}

// The test trains ddp's network with every MPI library. The weights have the same bits as over shm,
// and on four ranks also in a second run.
func TestTrainingHasSameBitsOverMPI(t *testing.T) {
	want := make(map[int]string)
	for n := range sameBits() {
		want[n] = onShm(t, n)
	}
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		if !mpitest.Turn(0, l.Library.Vendor) {
			t.Skip("left out with -short: ddp's bits with a second library; make test-all runs it")
		}
		for n, times := range sameBits() {
			for range times {
				if d := digest(t, l.Command(n, program(t, "ddp"), "--steps", steps)); d != want[n] {
					t.Errorf("%d ranks: the digest is %s, and over shm %s", n, d, want[n])
				}
			}
		}
	})
}

// Three ranks write one file through HDF5's C library, and its own program reads what the formula says.
func TestHDF5WritesOneFileFromAllRanks(t *testing.T) {
	if os.Getenv(mpitest.Variable) != "" {
		t.Skip(mpitest.Variable + " names the MPI libraries, and Debian's HDF5 works with Debian's Open MPI only")
	}
	l := mpitest.Of(t, mpifind.OpenMPI)
	need.Program(t, "pkg-config")
	need.Program(t, "h5pcc.openmpi")
	dump := need.Program(t, "h5dump")
	example, file := filepath.Join(t.TempDir(), "hdf5"), filepath.Join(t.TempDir(), "waves.h5")
	if out, err := exec.Command("go", "build", "-tags", "hdf5", "-o", example, "./hdf5").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	check(t, []string{regexp.QuoteMeta(file) + ": waves, 100 x 40"}, l.Command(3, example, file))
	out, err := exec.Command(dump, "-d", "/waves", "-y", "-w", "1", "-m", "%.17g", file).CombinedOutput()
	if err != nil {
		t.Fatalf("h5dump: %v\n%s", err, out)
	}
	values := regexp.MustCompile(`(?m)^ +(-?[0-9][0-9.e+-]*),?$`).FindAllSubmatch(out, -1)
	if len(values) != 100*40 {
		t.Fatalf("h5dump shows %d values, want 4000:\n%.2000s", len(values), out)
	}
	for i, v := range values {
		want := math.Sin(float64(i/40)/10) * math.Cos(float64(i%40)/10)
		if got, err := strconv.ParseFloat(string(v[1]), 64); err != nil || got != want {
			t.Fatalf("row %d, column %d is %s, want %v", i/40, i%40, v[1], want)
		}
	}
}

// A program is built without the mpi backend, in both ways, and started by MPI launchers. Its ranks
// return an error instead of running as separate worlds.
func TestProgramWithoutMPIRefusesMPILauncher(t *testing.T) {
	for name, build := range map[string][]string{"tag": {"CGO_ENABLED=1", "-tags=cohort_nompi"}, "cgo": {"CGO_ENABLED=0", "-tags="}} {
		t.Run(name, func(t *testing.T) {
			if name == "cgo" && testing.Short() {
				t.Skip("left out with -short: a program built without cgo; make test-all runs it")
			}
			example := filepath.Join(t.TempDir(), "hello")
			cmd := exec.Command("go", "build", build[1], "-o", example, "./hello")
			cmd.Env = append(os.Environ(), build[0])
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", cmd, err, out)
			}
			mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
				out, err := refused(l, example)
				if text := string(out); err == nil || strings.Contains(text, "hello from") || !strings.Contains(text, "built without it") || !strings.Contains(text, "one of 2") {
					t.Errorf("ended with %v:\n%s", err, out)
				}
			})
		})
	}
}

// refused returns what two ranks print that end at once. MPICH's mpiexec may be ended by a broken pipe
// between its own processes then, before it has passed anything on: it is started again.
func refused(l mpitest.Launcher, program string) (out []byte, err error) {
	for range 3 {
		out, err = l.Command(2, program).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || len(out) > 0 || !strings.Contains(exit.String(), "broken pipe") {
			break
		}
	}
	return out, err
}
