package topo_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
	"github.com/cohort-hpc/cohort/topo"
)

// asChild makes the test binary print its view of the node and exit.
const asChild = "TOPO_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(asChild) {
	case "":
		os.Exit(m.Run())
	case "here":
		say(topo.Here())
	case "job":
		j := topo.ThisJob()
		fmt.Printf("%s: rank %d of %d, %d of %d; problems: %v\n", j.Launcher, j.Rank, j.Size, j.LocalRank, j.LocalSize, j.Problems)
	case "worker":
		// One thread, probably the main one, is bound to the last processor; a goroutine on it must
		// still see all processors of the process.
		said := make(chan struct{})
		go func() {
			defer close(said)
			runtime.LockOSThread()
			n, err := topo.Here()
			if err != nil {
				say(n, err)
				return
			}
			if err := bind(n.CPUs[len(n.CPUs)-1:]); err != nil {
				say(nil, err)
				return
			}
			say(topo.Here())
		}()
		<-said
	}
}

func say(n *topo.Node, err error) {
	if err != nil {
		os.Stdout.WriteString(err.Error())
		return
	}
	os.Stdout.WriteString(n.CPUs.String())
}

// bind binds the calling thread.
func bind(cpus topo.CPUSet) error {
	var mask unix.CPUSet
	for _, c := range cpus {
		mask.Set(c)
	}
	return unix.SchedSetaffinity(0, &mask)
}

// child runs the test binary bound to some processors and returns its output.
func child(t *testing.T, what string, cpus, all topo.CPUSet) string {
	t.Helper()
	// A new process inherits the mask of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := bind(cpus); err != nil {
		t.Fatal(err)
	}
	defer bind(all)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"="+what)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestHereDescribesBoundProcess describes the node to processes bound to a part of it.
func TestHereDescribesBoundProcess(t *testing.T) {
	n, err := topo.Here()
	if err != nil {
		t.Fatal(err)
	}
	parts := []topo.CPUSet{n.CPUs, n.CPUs[:1], n.CPUs[len(n.CPUs)-1:], n.CPUs[len(n.CPUs)/2:]}
	for _, cpus := range parts {
		if got := child(t, "here", cpus, n.CPUs); got != cpus.String() {
			t.Errorf("bound to %v: got %s", cpus, got)
		}
		if got := child(t, "worker", cpus, n.CPUs); got != cpus.String() {
			t.Errorf("bound to %v, on a thread that is bound to the last of them: got %s", cpus, got)
		}
	}
}

// TestHereWithoutAffinityCall checks Here's fallback for the system call, which fails in kernels
// built for more processors than a mask holds.
func TestHereWithoutAffinityCall(t *testing.T) {
	want, err := topo.Here()
	if err != nil {
		t.Fatal(err)
	}
	n, err := topo.Read(os.DirFS("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !n.CPUs.Equal(want.CPUs) || cores(n) != cores(want) || domains(n) != domains(want) {
		t.Errorf("got %v, %v; want %v, %v", cores(n), domains(n), cores(want), domains(want))
	}
}

// TestThisJobUnderMPILaunchers starts ranks with the MPI launchers of this machine.
func TestThisJobUnderMPILaunchers(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		cmd := l.Command(2, os.Args[0])
		cmd.Env = append(cmd.Env, asChild+"=job")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		name := map[string]string{"MPICH": "MPICH's mpiexec", "Open MPI": "Open MPI's mpirun"}[l.Library.Vendor]
		want := []string{
			name + ": rank 0 of 2, 0 of 2; problems: []",
			name + ": rank 1 of 2, 1 of 2; problems: []",
		}
		got := slices.Sorted(strings.Lines(string(out)))
		for i := range got {
			got[i] = strings.TrimSpace(got[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
