package mpitest

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// systemFolder returns a folder like /usr/lib that has a copy of a library under each name.
func systemFolder(t *testing.T, names ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no ELF files")
	}
	lib, err := Libraries()
	if err != nil || len(lib) == 0 {
		t.Skipf("needs a library to copy: %v, %v", lib, err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(lib[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func paths(libs []mpifind.Library) (all []string) {
	for _, l := range libs {
		all = append(all, l.Path)
	}
	return all
}

// TestLibrariesIgnoresOtherInstallations checks that a second MPICH that comes first in PATH and
// LD_LIBRARY_PATH is not used.
func TestLibrariesIgnoresOtherInstallations(t *testing.T) {
	t.Setenv(Variable, "")
	before, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	other := systemFolder(t, "lib/libmpi.so.12", "lib/libmpi.so.40", "bin/mpiexec", "bin/mpicc")
	t.Setenv("PATH", filepath.Join(other, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(other, "lib"))
	t.Setenv("MPI_HOME", other)
	found := mpifind.Find(os.LookupEnv)
	if !slices.ContainsFunc(paths(found), func(p string) bool { return strings.HasPrefix(p, other) }) {
		t.Fatalf("mpifind does not find the other installation: %v", found)
	}
	n := 0
	Each(t, func(t *testing.T, l Launcher) {
		n++
		if strings.HasPrefix(l.Library.Path, other) || strings.HasPrefix(l.command, other) || strings.HasPrefix(l.Compiler(t), other) {
			t.Errorf("the test uses %v with %s, %s", l.Library, l.command, l.Compiler(t))
		}
		if !slices.Contains(l.Command(2, "true").Env, "COHORT_MPI_LIB="+l.Library.Path) {
			t.Errorf("the environment of ranks does not name %s", l.Library.Path)
		}
	})
	if n != len(before) {
		t.Errorf("used %d libraries, want %v", n, before)
	}
}

func TestLibrariesNamedByTheVariable(t *testing.T) {
	dir := systemFolder(t, "a/libmpi.so.12", "b/libmpi.so.12", "x86_64-linux-gnu/libmpich.so.12")
	want := []string{filepath.Join(dir, "b/libmpi.so.12"), filepath.Join(dir, "a/libmpi.so.12")}
	if got, err := libraries(strings.Join(want, ":"), dir); err != nil || !slices.Equal(paths(got), want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"/no/such/libmpi.so", "libmpi.so.12", "/etc/passwd"} {
		if got, err := libraries(bad, dir); err == nil || !strings.Contains(err.Error(), Variable) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v, %v", bad, got, err)
		}
	}
}
