package mpitest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// Variable names the MPI libraries for tests, as paths separated by colons. Without it tests use
// those of the distribution, which scripts/setup installs.
const Variable = "COHORT_TEST_MPI"

// distribution lists the files of Debian's packages, below a folder of libraries.
var distribution = []string{"libmpich.so.12", "libmpi.so.40"}

// Libraries returns the MPI libraries for tests: those that [Variable] names, or else those of the
// distribution, and no others on this machine. The error names a library that cannot be used.
func Libraries() ([]mpifind.Library, error) { return libraries(os.Getenv(Variable), "/usr/lib") }

func libraries(named, system string) ([]mpifind.Library, error) {
	files := filepath.SplitList(named)
	if named == "" {
		for _, name := range distribution {
			found, _ := filepath.Glob(filepath.Join(system, "*-linux-gnu", name)) // the pattern is well formed
			files = append(files, found...)
		}
	}
	var libs []mpifind.Library
	for _, f := range files {
		l, err := mpifind.Examine(f)
		switch {
		case named == "" && (err != nil || l.Problem != ""):
			continue // of another architecture, say
		case named != "" && !filepath.IsAbs(f):
			return nil, fmt.Errorf("%s names %s; want the absolute path of a library", Variable, f)
		case err != nil:
			return nil, fmt.Errorf("%s names a library that cannot be read: %w", Variable, err)
		case l.Problem != "":
			return nil, fmt.Errorf("%s names %s: %s", Variable, f, l.Problem)
		}
		libs = append(libs, l)
	}
	return libs, nil
}

// EachLibrary runs a test with every library for tests. It needs at least one, and both libraries
// of the set-up where nothing may be missing.
func EachLibrary(t *testing.T, test func(t *testing.T, lib mpifind.Library)) {
	t.Helper()
	libs, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	if len(libs) == 0 || len(libs) < len(distribution) && os.Getenv(Variable) == "" && need.Required() {
		need.Missing(t, "found %d of %d MPI libraries: run scripts/setup, or name libraries in %s", len(libs), len(distribution), Variable)
	}
	for _, lib := range libs {
		t.Run(cmp.Or(lib.Vendor, lib.Name), func(t *testing.T) { test(t, lib) })
	}
}

// Turn reports whether row i of a table runs with a library of this vendor. With -short the two of the set-up take turns.
func Turn(i int, vendor string) bool {
	return !testing.Short() || (i%2 == 0) == (vendor == "MPICH")
}

// Each is [EachLibrary] with the launcher of each library.
func Each(t *testing.T, test func(t *testing.T, l Launcher)) {
	t.Helper()
	EachLibrary(t, func(t *testing.T, lib mpifind.Library) { test(t, launcherOf(t, lib)) })
}

// Of returns the launcher of the first library of a family.
func Of(t testing.TB, family mpifind.Family) Launcher {
	t.Helper()
	libs, err := Libraries()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(libs, func(l mpifind.Library) bool { return l.Runtime == family })
	switch named := os.Getenv(Variable); {
	case i < 0 && named != "":
		t.Skipf("%s names no library of %v", Variable, family)
	case i < 0:
		need.Missing(t, "no library of %v: run scripts/setup, or name one in %s", family, Variable)
	}
	return launcherOf(t, libs[i])
}

// Compiler returns the C compiler command of the launcher's installation.
func (l Launcher) Compiler(t testing.TB) string {
	t.Helper()
	dir := filepath.Dir(l.command)
	names := map[mpifind.Family][]string{mpifind.MPICH: {"mpicc.mpich", "mpicc"}, mpifind.OpenMPI: {"mpicc.openmpi", "mpicc"}}[l.Library.Runtime]
	for _, name := range names {
		if file := filepath.Join(dir, name); need.Executable(file) {
			return file
		}
	}
	need.Missing(t, "%v has no C compiler command: none of %s is in %s", l.Library, strings.Join(names, ", "), dir)
	return ""
}
