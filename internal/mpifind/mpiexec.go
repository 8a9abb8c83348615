package mpifind

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// commands are the names of a family's launchers. The first ones show the family; mpiexec and
// mpirun do not.
var commands = map[Family][]string{
	MPICH:   {"mpiexec.mpich", "mpirun.mpich", "mpiexec.hydra", "mpiexec", "mpirun"},
	OpenMPI: {"mpirun.openmpi", "mpiexec.openmpi", "orterun", "mpirun", "mpiexec", "prterun"},
}

// Mpiexec finds the launcher that belongs to a library: in its installation, else one of its family
// in PATH. args returns its options for n ranks on one node, which the program and its arguments
// follow. Mpiexec runs no program.
func Mpiexec(lib Library) (command string, args func(n int) []string, err error) {
	return mpiexec(lib, os.LookupEnv)
}

func mpiexec(lib Library, env func(string) (string, bool)) (string, func(n int) []string, error) {
	family := lib.Runtime
	if family == Unknown { // a standard library of unknown vendor
		_, family = InPath(env)
	}
	args := func(n int) []string { return []string{"-n", strconv.Itoa(n)} }
	if family == OpenMPI {
		// Open MPI rejects more ranks than cores, not processors. With enough cores the option changes
		// nothing.
		args = func(n int) []string { return []string{"-n", strconv.Itoa(n), "--oversubscribe"} }
	}
	var folders []string
	for folder := filepath.Dir(lib.Path); folder != "/" && folder != "."; folder = filepath.Dir(folder) {
		folders = append(folders, filepath.Join(folder, "bin"))
	}
	for _, folder := range append(folders, split(env, "PATH", ":")...) {
		for _, name := range commands[family] {
			file := filepath.Join(folder, name)
			if filepath.IsAbs(file) && executable(file) && commandFamily(file) == family {
				return file, args, nil
			}
		}
	}
	return "", nil, fmt.Errorf("%v has no launcher here: none of %s in its installation or in PATH belongs to %s%s",
		lib, strings.Join(commands[family], ", "), family, packageOf(lib))
}

// packageOf returns the package with the launcher of a distribution's library.
func packageOf(lib Library) string {
	if !strings.HasPrefix(lib.Path, "/usr/lib/") && !strings.HasPrefix(lib.Path, "/lib/") {
		return ""
	}
	switch lib.Runtime {
	case MPICH:
		return " (apt-get install mpich)"
	case OpenMPI:
		return " (apt-get install openmpi-bin)"
	}
	return ""
}

// InPath returns the launcher that a user gets with the command mpiexec (or, without one, mpirun)
// and its family; "" if there is none.
func InPath(env func(string) (string, bool)) (command string, family Family) {
	if all := allInPath(env); len(all) > 0 {
		return all[0], commandFamily(all[0])
	}
	return "", Unknown
}

// allInPath returns all files in PATH with the names of launchers, mpiexec first.
func allInPath(env func(string) (string, bool)) []string {
	var all []string
	for _, name := range []string{"mpiexec", "mpirun", "mpiexec.hydra", "prterun", "orterun"} {
		for _, folder := range split(env, "PATH", ":") {
			if file := filepath.Join(folder, name); filepath.IsAbs(file) && executable(file) {
				all = append(all, file)
			}
		}
	}
	return all
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// resolved returns the file at the end of a chain of links.
func resolved(file string) string {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		return real
	}
	return file
}

// maxCommand is how much of a launcher is searched for a name.
const maxCommand = 4 << 20

// commandFamily returns the family of a launcher: by the name of the file that it links to, else by
// the names in it.
func commandFamily(command string) Family {
	real := resolved(command)
	name := filepath.Base(real)
	switch {
	case strings.Contains(name, "hydra") || strings.Contains(name, "mpich") || strings.HasPrefix(name, "mpirun_rsh"):
		return MPICH
	case strings.Contains(name, "openmpi") || strings.HasPrefix(name, "orterun") || strings.HasPrefix(name, "prte"):
		return OpenMPI
	}
	f, err := os.Open(real)
	if err != nil {
		return Unknown
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCommand))
	if err != nil {
		return Unknown
	}
	for _, m := range []struct {
		text   string
		family Family
	}{
		{"prterun", OpenMPI}, {"libopen-rte", OpenMPI}, {"OPAL_PREFIX", OpenMPI}, {"Open MPI", OpenMPI},
		{"HYDRA", MPICH}, {"hydra", MPICH},
	} {
		if bytes.Contains(b, []byte(m.text)) {
			return m.family
		}
	}
	return Unknown
}
