package tensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// A process that a launcher started finds its backend among the factories, without loading MPI's library, and joins
// the job by it.
func TestFactoryProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("short: processes take a second each")
	}
	onProcesses(t, []int{2}, "factory")
}

func init() {
	joins["factory"] = factoryJoin
	programs["factory"] = counted
}

// factoryJoin joins the job with the backend that the factories say is there; which one that ought to be it
// has from the variable that usually says so.
func factoryJoin() (*cohort.Comm, error) {
	want := os.Getenv("COHORT_BACKEND")
	if err := os.Unsetenv("COHORT_BACKEND"); err != nil {
		return nil, err
	}
	there := make(map[string]error)
	for _, f := range Factories(nil) {
		there[f.Name] = f.Available()
	}
	why, listed := there[want]
	if !listed || why != nil {
		return nil, fmt.Errorf("%s is not available to a process of its own launcher: listed %v, %w", want, listed, why)
	}
	if there["local"] == nil {
		return nil, errors.New("local is available to one of several processes")
	}
	name := "" // the best
	if want == "tcp" {
		name = want // shm is there too, on one node, and better
	}
	f, err := Select(name, nil)
	if err != nil || f.Name != want {
		return nil, fmt.Errorf("Select(%q) takes %q, want %s: %w", name, f.Name, want, err)
	}
	if mapped, err := libmpiMapped(); err != nil || mapped {
		return nil, fmt.Errorf("before New: MPI's library is loaded: %v, %w", mapped, err)
	}
	world, c, err := f.New(context.Background(), nil, &small)
	if err != nil {
		return nil, err
	}
	if mapped, err := libmpiMapped(); err != nil || mapped != (want == "mpi") {
		return nil, fmt.Errorf("after New of %s: MPI's library is loaded: %v, %w", want, mapped, err)
	}
	x, err := Of([]int32{int32(c.Rank() + 1)}, 1)
	if err != nil {
		return nil, err
	}
	err = Allreduce(c, x, x, Sum)
	if n := int32(c.Size()); err == nil && (world.Backend() != want || n < 2 || x.Data()[0] != n*(n+1)/2) {
		err = fmt.Errorf("the sum of %d ranks on %s is %d", n, world.Backend(), x.Data()[0])
	}
	return world, errors.Join(err, c.Close())
}

// libmpiMapped reports whether this process has loaded an MPI library: libmpi.so or libmpich.so.
func libmpiMapped() (bool, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if errors.Is(err, os.ErrNotExist) { // no Linux, and no MPI there
		return false, nil
	}
	return strings.Contains(string(maps), "/libmpi"), err
}
