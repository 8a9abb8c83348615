package mpifind

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// table is an environment.
type table map[string]string

func (v table) lookup(name string) (string, bool) {
	s, ok := v[name]
	return s, ok
}

// installation writes an MPI installation below a folder: a library and its launcher.
func installation(t *testing.T, prefix string, o object, commands ...string) (library string) {
	t.Helper()
	for _, c := range commands {
		path := filepath.Join(prefix, "bin", c)
		write(t, path, []byte("#!/bin/sh\n"), 0o755)
	}
	return o.write(t, filepath.Join(prefix, "lib", o.soname))
}

// below returns the libraries in a folder: the machine may have others.
func below(folder string, libs []Library) []string {
	var all []string
	for _, l := range libs {
		if strings.HasPrefix(l.Path, folder+"/") {
			all = append(all, l.Path)
		}
	}
	return all
}

func TestFindOrdersLibraries(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mpich := installation(t, dir+"/mpich", likeMPICH, "mpiexec.hydra")
	ompi := installation(t, dir+"/ompi", likeOpenMPI, "orterun")
	standard := installation(t, dir+"/standard", likeStandard, "mpiexec.hydra")
	foreign := write(t, dir+"/odd/libmpi.so.40", []byte("text"), 0o644)
	mixed := dir + "/mixed"
	mixedMPICH, mixedOMPI := likeMPICH.write(t, mixed+"/libmpi.so.12"), likeOpenMPI.write(t, mixed+"/libmpi.so.40")
	for name, to := range map[string]string{"libmpi.so": "libmpi.so.40", "libmpich.so": "libmpi.so.12"} {
		if err := os.Symlink(to, mixed+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"mpich", "ompi"} {
		target := map[string]string{"mpich": "mpiexec.hydra", "ompi": "orterun"}[prefix]
		if err := os.Symlink(target, dir+"/"+prefix+"/bin/mpiexec"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		env  table
		want []string
	}{
		{"nothing", table{}, nil},
		{"library path, each file once", table{"LD_LIBRARY_PATH": mixed + ":" + dir + "/mixed/"}, []string{mixedOMPI, mixedMPICH}},
		{"the mpiexec in PATH decides in one folder", table{"LD_LIBRARY_PATH": mixed, "PATH": dir + "/mpich/bin"}, []string{mixedMPICH, mixedOMPI, mpich}},
		{"library path before home before PATH", table{"LD_LIBRARY_PATH": dir + "/standard/lib", "MPI_HOME": dir + "/ompi", "PATH": dir + "/mpich/bin"},
			[]string{standard, ompi, mpich}},
		{"beside a link in PATH", table{"PATH": dir + "/ompi/bin"}, []string{ompi}},
		{"what cannot be loaded last", table{"LD_LIBRARY_PATH": dir + "/odd", "MPI_ROOT": dir + "/mpich"}, []string{mpich, foreign}},
		{"odd values", table{"LD_LIBRARY_PATH": ":;relative:/no/such/folder:" + strings.Repeat("x", 5000), "PATH": "::.", "MPI_HOME": "["}, nil},
	} {
		if got := below(dir, Find(c.env.lookup)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestExamineFindsLibraryByName(t *testing.T) {
	dir := t.TempDir()
	file := likeMPICH.write(t, dir+"/libother.so.3")
	env := table{"LD_LIBRARY_PATH": "/no/such:" + dir}
	l, err := examine("libother.so.3", env.lookup)
	if real, _ := filepath.EvalSymlinks(file); err != nil || l.Path != real || l.Family != MPICH {
		t.Errorf("got %+v, %v", l, err)
	}
}

// TestExaminePrefersSonameLink checks that a library has the name that programs are linked to,
// which is a link to the file.
func TestExaminePrefersSonameLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real := likeOpenMPI.write(t, dir+"/libmpi.so.40.30.4")
	for link, to := range map[string]string{"libmpi.so.40": real, "libmpi.so": "libmpi.so.40"} {
		if err := os.Symlink(to, dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"libmpi.so", "libmpi.so.40", "libmpi.so.40.30.4"} {
		if l, err := Examine(dir + "/" + name); err != nil || l.Path != dir+"/libmpi.so.40" {
			t.Errorf("%s: got %s, %v", name, l.Path, err)
		}
	}
}

func TestLoaderFoldersFollowConfiguration(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/etc/ld.so.conf", []byte("include /etc/ld.so.conf.d/*.conf\n# /not/this\ninclude more/*\nrelative\n/plain  # why\ninclude /etc/ld.so.conf\nincluded/not\n"), 0o644)
	write(t, root+"/etc/ld.so.conf.d/a.conf", []byte("/of/a\n\n/of/a2"), 0o644)
	write(t, root+"/etc/ld.so.conf.d/b.txt", []byte("/of/b\n"), 0o644)
	write(t, root+"/etc/more/c", []byte("\t/of/c\t\n"), 0o644)
	want := []string{"/of/a", "/of/a2", "/of/c", "/plain"}
	got := loaderFolders(root)
	for i, w := range want {
		if i >= len(got) || got[i] != filepath.Join(root, w) {
			t.Fatalf("got %q, want %q first", got, want)
		}
	}
	if !slices.Contains(got, filepath.Join(root, "usr/lib")) {
		t.Errorf("%q lacks usr/lib", got)
	}
}

// TestFindAgreesWithInstalledPackages compares the MPI packages of this machine with the output of
// their own commands.
func TestFindAgreesWithInstalledPackages(t *testing.T) {
	for _, c := range []struct {
		name, vendor string
		family       Family
		version      []string // a command that prints the version
		compiler     []string // one that prints the library that programs are linked with
	}{
		{"Open MPI", "Open MPI", OpenMPI, []string{"mpirun.openmpi", "--version"}, []string{"mpicc.openmpi", "--showme:libdirs"}},
		{"MPICH", "MPICH", MPICH, []string{"mpichversion"}, []string{"mpicc.mpich", "-link_info"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.Command(need.Program(t, c.version[0]), c.version[1:]...).Output()
			if err != nil {
				t.Fatal(err)
			}
			line, _, _ := strings.Cut(string(out), "\n")
			var found []Library
			for _, l := range Find(os.LookupEnv) {
				if l.Family == c.family && l.Vendor == c.vendor && l.Problem == "" && strings.HasSuffix(strings.TrimSpace(line), l.Version) && l.Version != "" {
					found = append(found, l)
				}
			}
			if len(found) != 1 {
				t.Fatalf("%q: found %v, want one library of that version", line, Find(os.LookupEnv))
			}
			l := found[0]
			command, args, err := Mpiexec(l)
			if err != nil || commandFamily(command) != c.family {
				t.Fatalf("%s, %v", command, err)
			}
			env := append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			cmd := exec.CommandContext(t.Context(), command, append(args(3), "env")...)
			// MPICH's launcher ends by SIGPIPE if a rank ends before it has passed on the end of its
			// input. This input has none while the launcher runs.
			input, open, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer input.Close()
			defer open.Close()
			cmd.Stdin = input
			cmd.Env = env
			out, err = cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			checkRanks(t, string(out), c.family)
		})
	}
}

// checkRanks checks that three ranks were started, from their environments.
func checkRanks(t *testing.T, text string, family Family) {
	t.Helper()
	key := map[Family]string{OpenMPI: "OMPI_COMM_WORLD_RANK", MPICH: "PMI_RANK"}[family]
	var ranks []string
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name == key {
			ranks = append(ranks, value)
		}
	}
	if slices.Sort(ranks); !slices.Equal(ranks, []string{"0", "1", "2"}) {
		t.Errorf("ranks %q, want 0, 1 and 2", ranks)
	}
}
