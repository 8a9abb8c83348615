package mpifind

import (
	"bufio"
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// names are the file names of MPI libraries as patterns, best first: those for running programs
// before those for compilers.
var names = []string{
	"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_cray.so*", "libmpi_gnu*.so*", "libmpi_intel.so*",
	"libmpi_ibm.so*", "libmpi.so", "libmpi_abi.so.1", "libmpich.so", "libmpi.so.*", "libmpi_abi.so",
}

// place is a folder to look in. Lower classes come first.
type place struct {
	folder string
	class  int
}

const (
	classNamed    = iota // the launcher names it
	classAsked           // LD_LIBRARY_PATH
	classLauncher        // in the launcher's installation
	classHome            // MPI_HOME and the like
	classBeside          // beside the mpiexec in PATH
	classLoader          // where the loader looks
	classKnown           // other folders of packages
)

// Find lists the libraries of this machine, best first, each file once. It looks where the launcher
// of this process has its library, in LD_LIBRARY_PATH, the launcher's installation, MPI_HOME and
// similar variables, beside the mpiexec in PATH, in the loader's folders, and in the usual folders
// of packages. In one folder, libraries that fit the mpiexec in PATH come first. Libraries with a
// Problem come last.
func Find(env func(string) (string, bool)) []Library {
	type found struct {
		Library
		class, unfit, order int
	}
	var all []found
	seen := map[string]bool{}
	_, launcher := InPath(env)
	for _, p := range searchPlaces(env) {
		for order, pattern := range names {
			files, _ := fs.Glob(os.DirFS(p.folder), pattern) // the only error is a bad pattern
			for _, file := range files {
				file = filepath.Join(p.folder, file)
				real, err := filepath.EvalSymlinks(file)
				if err != nil || seen[real] {
					continue
				}
				seen[real] = true
				l, err := examineFile(file)
				if err != nil {
					continue // removed meanwhile
				}
				f := found{Library: l, class: p.class, order: order}
				if l.Problem != "" {
					f.class = classKnown + 1
				}
				if !l.Fits(launcher) {
					f.unfit = 1
				}
				all = append(all, f)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(a.class-b.class, a.unfit-b.unfit, a.order-b.order)
	})
	libs := make([]Library, len(all))
	for i, f := range all {
		libs[i] = f.Library
	}
	return libs
}

// homes are variables with the folder of an MPI installation.
var homes = []string{"MPI_HOME", "MPI_ROOT", "I_MPI_ROOT", "CRAY_MPICH_DIR", "MPICH_DIR", "OPAL_PREFIX", "EBROOTOPENMPI", "EBROOTMPICH", "EBROOTIMPI"}

// searchPlaces returns the folders to look in, each once, best first.
func searchPlaces(env func(string) (string, bool)) []place {
	var all []place
	seen := map[string]bool{}
	add := func(class int, folders ...string) {
		for _, f := range folders {
			if !filepath.IsAbs(f) {
				continue // the result must not depend on the working directory
			}
			f = filepath.Clean(f)
			if info, err := os.Stat(f); err != nil || !info.IsDir() || seen[f] {
				continue
			}
			seen[f] = true
			all = append(all, place{f, class})
		}
	}
	named, beside := launcherFolders(env)
	add(classNamed, named...)
	add(classAsked, split(env, "LD_LIBRARY_PATH", ":;")...)
	add(classLauncher, beside...)
	for _, h := range homes {
		for _, prefix := range split(env, h, ":") {
			add(classHome, libFolders(prefix)...)
		}
	}
	for _, command := range allInPath(env) {
		for _, file := range []string{command, resolved(command)} {
			// /usr belongs to the loader, not to one installation.
			if prefix := filepath.Dir(filepath.Dir(file)); prefix != "/" && prefix != "/usr" {
				add(classBeside, libFolders(prefix)...)
			}
		}
	}
	add(classLoader, loaderFolders("/")...)
	for _, pattern := range known {
		folders, _ := filepath.Glob(pattern)
		slices.Reverse(folders) // the highest version first
		add(classKnown, folders...)
	}
	return all
}

// known are folders outside the loader's where packages and people install MPI.
var known = []string{
	"/usr/lib64/openmpi*/lib", "/usr/lib64/mpich*/lib", "/usr/lib64/mpi/gcc/*/lib64", "/usr/lib/*/openmpi*/lib", "/usr/lib/*/mpich*/lib",
	"/usr/local/openmpi*/lib", "/usr/local/mpich*/lib", "/opt/openmpi*/lib", "/opt/mpich*/lib", "/opt/mvapich*/lib",
	"/opt/intel/oneapi/mpi/latest/lib", "/opt/intel/oneapi/mpi/latest/lib/release", "/opt/cray/pe/mpich/default/ofi/gnu/*/lib",
	"/opt/amazon/openmpi*/lib*", "/opt/homebrew/lib",
}

// libFolders returns the folders of an installation that may hold its libraries.
func libFolders(prefix string) []string {
	var all []string
	for _, sub := range []string{"lib", "lib64", "lib/release", "lib/" + multiarch(), "intel64/lib/release"} {
		all = append(all, filepath.Join(prefix, sub))
	}
	return all
}

// multiarch returns Debian's name of this architecture.
func multiarch() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "386": "i386", "ppc64le": "powerpc64le", "loong64": "loongarch64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return arch + "-linux-gnu"
}

// loaderFolders returns the folders of the dynamic loader: those in its configuration below root,
// and the default ones.
func loaderFolders(root string) []string {
	var all []string
	seen := map[string]bool{}
	var read func(file string)
	read = func(file string) {
		f, err := os.Open(file)
		if err != nil || seen[file] {
			return
		}
		seen[file] = true
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			line, _, _ := strings.Cut(s.Text(), "#")
			line = strings.TrimSpace(line)
			if pattern, ok := strings.CutPrefix(line, "include"); ok && strings.TrimLeft(pattern, " \t") != pattern {
				pattern = strings.TrimSpace(pattern)
				if filepath.IsAbs(pattern) {
					pattern = filepath.Join(root, pattern)
				} else {
					pattern = filepath.Join(filepath.Dir(file), pattern)
				}
				files, _ := filepath.Glob(pattern)
				for _, f := range files {
					read(f)
				}
			} else if filepath.IsAbs(line) {
				all = append(all, filepath.Join(root, line))
			}
		}
	}
	read(filepath.Join(root, "etc/ld.so.conf"))
	for _, f := range []string{"lib/" + multiarch(), "usr/lib/" + multiarch(), "lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib"} {
		all = append(all, filepath.Join(root, f))
	}
	return all
}

// split returns the nonempty parts of a variable's value.
func split(env func(string) (string, bool), name, separators string) []string {
	v, _ := env(name)
	return strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(separators, r) })
}
