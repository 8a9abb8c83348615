package mpifind

import (
	"os"
	"path/filepath"
	"testing"
)

// TestChooseTakesTheLaunchersLibrary checks that a rank takes the library of its launcher, which
// the launcher names or which is in its installation, before another one of PATH and MPI_HOME.
func TestChooseTakesTheLaunchersLibrary(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	before := ancestors
	t.Cleanup(func() { ancestors = before })
	for _, c := range []struct {
		name     string
		o        object
		env      table
		commands []string // of both installations
		parent   string
		named    bool
	}{
		{"OMPI_LIBDIR_LOC", likeOpenMPI, ofOpenMPI, []string{"mpirun"}, "prterun", true},
		{"mpirun", likeOpenMPI, ofOpenMPI, []string{"mpirun", "orterun"}, "orterun", false},
		{"a daemon on another node", likeOpenMPI, ofOpenMPI, []string{"mpirun", "prted"}, "prted", false},
		{"Hydra", likeMPICH, ofHydra, []string{"mpiexec", "hydra_pmi_proxy"}, "hydra_pmi_proxy", false},
		{"Slurm", likeMPICH, ofSrun, []string{"mpiexec"}, "slurmstepd", false},
	} {
		own := installation(t, filepath.Join(dir, c.name, "own"), c.o, c.commands...)
		other := installation(t, filepath.Join(dir, c.name, "other"), c.o, c.commands...)
		env := with(c.env, table{"PATH": filepath.Join(dir, c.name, "other/bin"), "MPI_HOME": filepath.Join(dir, c.name, "other")})
		parent := filepath.Join(dir, c.name, "own/bin", c.parent)
		if c.named {
			env["OMPI_LIBDIR_LOC"] = filepath.Dir(own)
			parent = "/opt/prrte/bin/prterun"
		}
		ancestors = func() []string { return []string{"/bin/bash", "/usr/bin/env", parent, "/usr/bin/mpirun"} }
		want := own
		if c.name == "Slurm" {
			want = other
		}
		libs, err := Choose("", env.lookup, "")
		if err != nil || libs[0].Path != want {
			t.Errorf("%s: got %v, %v; want %s", c.name, libs, err, want)
		}
		// LD_LIBRARY_PATH is the user's word, which only the launcher's own comes before.
		env["LD_LIBRARY_PATH"] = filepath.Dir(other)
		if !c.named {
			want = other
		}
		if libs, err := Choose("", env.lookup, ""); err != nil || libs[0].Path != want {
			t.Errorf("%s with LD_LIBRARY_PATH: got %v, %v; want %s", c.name, libs, err, want)
		}
	}
}

func TestAncestorsHaveTheParentFirst(t *testing.T) {
	want, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Skip("there is no /proc")
	}
	all := ancestors()
	if len(all) == 0 || all[0] == want {
		t.Errorf("got %q, which begins with this program or has nothing", all)
	}
}
