package mpifind

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// libdirs are the variables in which launchers name the folder of their library. Open MPI's mpirun
// sets them from 5.0 on.
var libdirs = []string{"OMPI_LIBDIR_LOC", "OPAL_LIBDIR"}

// launcherFolders returns the folders where the library of this process's launcher may be: those
// that the launcher names, and those of its installation.
func launcherFolders(env func(string) (string, bool)) (named, beside []string) {
	if Launched(env) == nil {
		return nil, nil
	}
	for _, v := range libdirs {
		named = append(named, split(env, v, ":")...)
	}
	for _, exe := range ancestors() {
		switch name := filepath.Base(exe); {
		case launches(name):
			return named, libFolders(filepath.Dir(filepath.Dir(exe)))
		case name == "slurmstepd": // which starts programs of any library
			return named, nil
		}
	}
	return named, nil
}

// launches reports whether a program with that name starts ranks: mpiexec itself, or its daemon on
// a node.
func launches(name string) bool {
	return slices.ContainsFunc([]string{"mpiexec", "mpirun", "hydra_", "orte", "prte", "prun", "pmi_proxy"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// ancestors returns the programs of the parent process, its parent and so on, as far as they can be
// read. Between a launcher and a rank there are only a few processes, such as shells. Tests replace
// it.
var ancestors = func() (programs []string) {
	pid := os.Getppid()
	for range 8 {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			break
		}
		programs = append(programs, exe)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		// The state and the parent follow the name in parentheses, which may have spaces.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			break
		}
		if pid, err = strconv.Atoi(string(fields[1])); err != nil || pid < 1 {
			break
		}
	}
	return programs
}
