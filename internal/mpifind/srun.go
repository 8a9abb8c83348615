package mpifind

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// srun starts programs of any library, which join through the protocol that --mpi names. A library
// without that protocol takes the process for a job of one rank, or ends it with advice that may not
// apply to this Slurm.

// bySrun reports whether a launcher is Slurm's.
func (l *Launcher) bySrun() bool { return l.Name == "srun" || strings.HasPrefix(l.Name, "srun ") }

// cannotJoin reports whether a library is known not to be able to join srun's job. Only Open MPI
// may be: from 5.0 on it joins only through PMIx, and before through its installed components, as
// far as these are files.
func (l *Launcher) cannotJoin(lib Library, env func(string) (string, bool)) bool {
	if !l.bySrun() || lib.Runtime != OpenMPI || anySet(env, "PMIX_RANK", "PMIX_NAMESPACE") {
		return false
	}
	first, _, _ := strings.Cut(lib.Version, ".")
	if major, err := strconv.Atoi(first); err == nil && major >= 5 && lib.Vendor == "Open MPI" {
		return true
	}
	if anySet(env, "OMPI_MCA_mca_base_component_path", "OMPI_MCA_component_path", "OPAL_PREFIX", "OPAL_PKGLIBDIR") {
		return false // its components are elsewhere
	}
	known := components(lib, "mca_pmix_*.so")
	return len(known) > 0 && !slices.ContainsFunc(known, func(name string) bool {
		return name == "mca_pmix_s1.so" || name == "mca_pmix_s2.so" || name == "mca_pmix_cray.so"
	})
}

// components returns the names of an Open MPI's components: in the folder openmpi beside the
// library, and where Debian has them.
func components(lib Library, pattern string) (names []string) {
	for _, path := range []string{lib.Path, resolved(lib.Path)} {
		dir := filepath.Dir(path)
		for _, folder := range []string{"openmpi", "openmpi?", "openmpi/lib/openmpi*"} {
			files, _ := filepath.Glob(filepath.Join(dir, folder, pattern)) // missing files do not match
			for _, f := range files {
				names = append(names, filepath.Base(f))
			}
		}
	}
	return names
}

// SrunFor returns the srun command that starts programs of a family, "" for Unknown.
func SrunFor(f Family) string {
	switch f {
	case OpenMPI:
		return "srun --mpi=pmix"
	case MPICH:
		return "srun --mpi=pmi2"
	}
	return ""
}

// Advice returns what to do about a process that is alone to its library, of a family and at a
// path, though the launcher counts it as one of several.
func (l *Launcher) Advice(f Family, path string) string {
	const choices = "pmi2 is for MPICH, pmix for Open MPI; srun --mpi=list lists what this Slurm has"
	with := SrunFor(f)
	switch {
	case l.bySrun() && with != "" && with != l.Name:
		return "start it with " + with + " (" + choices + "), or with the mpiexec of " + path
	case l.bySrun():
		return "the library does not support its protocol for joining ranks: try another (" + choices +
			"; for Intel MPI set I_MPI_PMI_LIBRARY to Slurm's libpmi2.so), or start it with the mpiexec of " + path
	case l.Family == Unknown:
		return "the library does not support its protocol for joining ranks: start it with the mpiexec of " + path
	}
	return "start it with the mpiexec of " + path + ", or set COHORT_MPI_LIB to the launcher's library"
}
