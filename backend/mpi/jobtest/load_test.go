//go:build cgo && linux

package jobtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// mapped returns the MPI libraries in this process, and other files that belong to them.
func mapped() (libs, parts []string) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	lib := regexp.MustCompile(`^lib(mpi|mpich)(\.so|_abi)`)
	part := regexp.MustCompile(`^lib(mpi|ucp|ucs|uct|open-pal|open-rte|pmix|fabric|psm)`)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		switch name := filepath.Base(f[5]); {
		case lib.MatchString(name) && !slices.Contains(libs, f[5]):
			libs = append(libs, f[5])
		case part.MatchString(name) && !slices.Contains(parts, f[5]):
			parts = append(parts, f[5])
		}
	}
	return libs, parts
}

// library returns the installed library of a launcher.
func library(t *testing.T, name string) mpifind.Library {
	t.Helper()
	return mpitest.Of(t, families[name]).Library
}

// mpicc returns the C compiler command of a library.
func mpicc(t *testing.T, name string) string {
	t.Helper()
	return mpitest.Of(t, families[name]).Compiler(t)
}

func other(name string) string {
	if name == "mpich" {
		return "openmpi"
	}
	return "mpich"
}

// sharesMemory checks that rank 0 reads what rank 1 writes in a window, and that Caps reports it.
func sharesMemory(w *cohort.Comm) error {
	win, err := cohort.AllocateShared[int64](w, 10)
	if err != nil {
		return err
	}
	own, err := win.Local()
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		own[3] = 77
	}
	if err := win.Fence(); err != nil {
		return err
	}
	part, err := win.Remote(1)
	if err != nil {
		return err
	}
	if shared := part[3] == 77; !shared || !w.Caps().SharedMemory {
		return fmt.Errorf("memory is shared: %v, and Caps reports %v", shared, w.Caps().SharedMemory)
	}
	return win.Close()
}

// TestOnlyInitLoadsALibrary checks that a program without MPI has no MPI library in its process,
// and one with MPI has only the launcher's.
func TestOnlyInitLoadsALibrary(t *testing.T) {
	program("local", func() error {
		if err := cohort.Run(t.Context(), 2, func(w *cohort.Comm) error { return traffic(w, 3) }); err != nil {
			return err
		}
		libs, parts := mapped()
		say("mapped %q %q", libs, parts)
		return nil
	})
	rank("mpi", func(w *cohort.Comm) error {
		libs, _ := mapped()
		say("mapped %q", libs)
		must.OK(sharesMemory(w))
		return traffic(w, 3)
	})
	start(t, "", 1, "local").must(t).has(t, "mapped [] []\n")
	inLibraries(t, func(t *testing.T, name string) {
		start(t, name, 2, "local").must(t).hasNot(t, `mapped ["`)
		real, err := filepath.EvalSymlinks(library(t, name).Path)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%q", []string{real})
		if got := start(t, name, 2, "mpi").must(t).lines("mapped"); !slices.Equal(got, []string{want, want}) {
			t.Errorf("in the processes are %q, want %s twice", got, want)
		}
	})
}

// initFails is a program that expects Init to fail and prints the error.
func initFails() error {
	w, err := cohort.Init(background, nil)
	if err == nil {
		return fmt.Errorf("Init gave a world of %d ranks with %s", w.Size(), w.Caps().Library)
	}
	if !errors.Is(err, cohort.ErrInit) {
		return fmt.Errorf("no ErrInit: %w", err)
	}
	var op *cohort.OpError
	if !errors.As(err, &op) || op.Op != "init" {
		return fmt.Errorf("no OpError of init: %w", err)
	}
	say("refused %v", err)
	return nil
}

// tooOld is a library with MPICH's names and almost no functions.
const tooOld = `
int MPIR_old;
int MPI_Init(int *c, char ***v) { return 0; }
int MPI_Get_version(int *a, int *b) { *a = 1; *b = 2; return 0; }
int PMPI_Get_version(int *a, int *b) { return MPI_Get_version(a, b); }
`

// TestInitRejectsUnusableLibraries checks the errors of Init for libraries that cannot be used.
func TestInitRejectsUnusableLibraries(t *testing.T) {
	program("refused", initFails)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	library(t, "mpich")
	exe, err := os.ReadFile(library(t, "mpich").Path)
	if err != nil {
		t.Fatal(err)
	}
	foreign := slices.Clone(exe)
	binary.LittleEndian.PutUint16(foreign[18:], 22) // e_machine: s390
	old := compiledC(t, "gcc", tooOld, "libmpi.so.12", "-shared", "-fPIC", "-Wl,-soname,libmpi.so.12")
	none := compiledC(t, "gcc", "int f(void) { return 0; }", "libmpi.so.40", "-shared", "-fPIC")
	// It needs a library that does not exist.
	lost := compiledC(t, "gcc", "int not_there(void);\nint MPIR_f;\nint MPI_Init(void) { return not_there(); }", "libmpi.so.12", "-shared", "-fPIC")
	for _, c := range []struct {
		name, asked string
		want        []string
	}{
		{"no file", "/no/such/libmpi.so", []string{"COHORT_MPI_LIB", "/no/such/libmpi.so", "no such file"}},
		{"nonsense", "Nonsense", []string{"COHORT_MPI_LIB", "Nonsense", "give its path"}},
		{"a folder", dir, []string{"COHORT_MPI_LIB", dir, "not a file"}},
		{"a text", file("script.so", []byte("GROUP ( /usr/lib/libmpi.so )\n")), []string{"not a library"}},
		{"another machine", file("foreign.so", foreign), []string{"foreign.so", "another machine", "EM_S390"}},
		{"cut short", file("short.so", exe[:500]), []string{"short.so", "damaged"}},
		{"another library", none, []string{none, "not an MPI library"}},
		{"a library that it needs is missing", lost, []string{lost, "not_there"}},
		{"too old", old, []string{old, "too old", "MPI_"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			start(t, "", 1, "refused", "COHORT_BACKEND=mpi", "COHORT_MPI_LIB="+c.asked).must(t).has(t, append(c.want, "refused ")...)
		})
	}
}

// TestTooOldLibraryIsSkipped checks that an unusable library that is found first is skipped, and
// does not disturb the next one.
func TestTooOldLibraryIsSkipped(t *testing.T) {
	skipShort(t, "a library that cannot be used is skipped")
	rank("next", func(w *cohort.Comm) error {
		say("library %s", w.Caps().Library)
		return traffic(w, 3)
	})
	old := compiledC(t, "gcc", tooOld, "libmpi.so.12", "-shared", "-fPIC", "-Wl,-soname,libmpi.so.12")
	library(t, "mpich")
	got := start(t, "mpich", 2, "next", "COHORT_MPI_LIB=", "LD_LIBRARY_PATH="+filepath.Dir(old)).must(t).lines("library")
	if len(got) != 2 || !strings.HasPrefix(got[0], "MPICH") || got[1] != got[0] {
		t.Errorf("the libraries are %q", got)
	}
}

// TestForeignLauncherIsErrInitOnAllRanks checks that Init fails on all ranks if they load another
// library than their launcher's, before any rank becomes a world of its own.
func TestForeignLauncherIsErrInitOnAllRanks(t *testing.T) {
	program("refused", initFails)
	rank("world", func(w *cohort.Comm) error { return traffic(w, 1) })
	inLibraries(t, func(t *testing.T, name string) {
		asked := library(t, other(name))
		e := start(t, name, 3, "refused", "COHORT_MPI_LIB="+asked.Path).must(t)
		refused := e.lines("refused")
		slices.Sort(refused) // each begins with its rank
		if len(refused) != 3 {
			t.Fatalf("%d of 3 ranks have the error:\n%s", len(refused), e.out)
		}
		own, _, err := mpifind.Mpiexec(asked)
		if err != nil {
			t.Fatal(err)
		}
		for rank, text := range refused {
			for _, want := range []string{fmt.Sprintf("init: rank %d: ", rank), asked.Path, asked.Vendor, library(t, name).Vendor, "start the program with " + own, "COHORT_MPI_LIB"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not have %q", text, want)
				}
			}
		}
		// The same with a preloaded library.
		start(t, name, 2, "refused", "COHORT_MPI_LIB=", "LD_PRELOAD="+asked.Path).must(t).has(t, "in this process", asked.Path)
		// A program that does not expect the error fails.
		start(t, name, 2, "world", "COHORT_MPI_LIB="+asked.Path).failed(t, asked.Path)
	})
}

// TestRankAloneUnderLauncherIsErrInit checks that Init fails in a process that a launcher counts as
// one of several and the library as the only one.
func TestRankAloneUnderLauncherIsErrInit(t *testing.T) {
	program("refused", initFails)
	inLibraries(t, func(t *testing.T, name string) {
		lib := library(t, name)
		e := start(t, "", 1, "refused", "COHORT_MPI_LIB="+lib.Path,
			"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_LOCALID=1")
		e.must(t)
		if name == "openmpi" { // it would end the process
			e.has(t, "refused", "rank 1 of 4 processes started by srun", "start it with srun --mpi=pmix", lib.Path)
		} else {
			e.has(t, "refused", "one of 4 started by srun", "alone", "start it with srun --mpi=pmi2", lib.Path)
		}
	})
}

// installed copies a library to a folder that looks like an installation with its own launcher.
func installed(t *testing.T, lib mpifind.Library) (prefix string) {
	t.Helper()
	prefix = t.TempDir()
	content, err := os.ReadFile(lib.Path)
	for file, b := range map[string][]byte{"lib/" + lib.Soname: content, "bin/mpiexec": []byte("#!/bin/sh\n# " + lib.Vendor)} {
		path := filepath.Join(prefix, file)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

// TestInitChoosesLibrary checks which library Init takes. With -short the ways alternate between the libraries.
func TestInitChoosesLibrary(t *testing.T) {
	rank("choice", func(w *cohort.Comm) error {
		say("library %s", w.Diagnostics()[0])
		return traffic(w, 1)
	})
	inLibraries(t, func(t *testing.T, name string) {
		lib := library(t, name)
		second := installed(t, lib)
		for i, c := range []struct {
			how string
			env []string
		}{
			{"by the launcher", []string{"COHORT_MPI_LIB="}},
			{"by the launcher, though PATH begins with another", []string{"COHORT_MPI_LIB=", "MPI_HOME=" + second, "PATH=" + second + "/bin:" + os.Getenv("PATH")}},
			{"by its path", []string{"COHORT_MPI_LIB=" + lib.Path}},
			{"by its name", []string{"COHORT_MPI_LIB=" + lib.Soname}},
			{"in the process already", []string{"LD_PRELOAD=" + lib.Path}},
		} {
			if testing.Short() && libraries[i%2] != name {
				continue
			}
			got := start(t, name, 2, "choice", c.env...).must(t).lines("library")
			for _, l := range got {
				real, err := filepath.EvalSymlinks(l[strings.LastIndex(l, "(")+1 : len(l)-1])
				want, _ := filepath.EvalSymlinks(lib.Path)
				if err != nil || real != want {
					t.Errorf("%s: the library is %s, want %s", c.how, l, want)
				}
			}
			if len(got) != 2 {
				t.Errorf("%s: %q", c.how, got)
			}
		}
		// Without a launcher a process is alone.
		e := start(t, "", 1, "choice", "COHORT_BACKEND=mpi", "COHORT_MPI_LIB="+lib.Path).must(t)
		if len(e.lines("library")) != 1 {
			t.Errorf("without a launcher: %s", e.out)
		}
	})
}

// tool is a tool of MPI's profiling interface that counts calls.
const tool = `
#include <mpi.h>
#include <stdio.h>
static int inits, sends, reductions;
int MPI_Init_thread(int *c, char ***v, int want, int *got) { inits++; return PMPI_Init_thread(c, v, want, got); }
int MPI_Send(const void *b, int n, MPI_Datatype t, int dest, int tag, MPI_Comm c) { sends++; return PMPI_Send(b, n, t, dest, tag, c); }
int MPI_Allreduce(const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) { reductions++; return PMPI_Allreduce(s, r, n, t, op, c); }
int MPI_Get_version(int *a, int *b) { return PMPI_Get_version(a, b); }
int MPI_Finalize(void) {
	char line[100];
	int n = snprintf(line, sizeof line, "tool %d %d %d\n", inits, sends, reductions);
	fwrite(line, 1, n, stdout);
	fflush(stdout);
	return PMPI_Finalize();
}
`

// TestPreloadedToolsSeeCalls checks that preloaded tools see cohort's calls, whether or not they
// are linked to the library.
func TestPreloadedToolsSeeCalls(t *testing.T) {
	skipShort(t, "profiling tools see the calls")
	rank("traffic", func(w *cohort.Comm) error {
		for i := range 7 {
			if w.Rank() == 0 {
				must.OK(cohort.Send(w, []int{i}, 1, i))
			} else if _, err := cohort.Recv(w, make([]int, 1), 0, i); err != nil {
				return err
			}
		}
		for range 5 {
			must.Get(cohort.AllreduceOne(w, 1, cohort.Sum))
		}
		return nil
	})
	inLibraries(t, func(t *testing.T, name string) {
		launcher(t, name)
		compiler, flags := mpicc(t, name), []string{"-shared", "-fPIC"}
		for how, path := range map[string]string{
			"linked to the library": compiledC(t, compiler, tool, "tool.so", flags...),
			"linked to nothing":     compiledC(t, "gcc", tool, "tool.so", append(flags, includes(t, compiler, name == "openmpi")...)...),
		} {
			e := start(t, name, 2, "traffic", "LD_PRELOAD="+path).must(t)
			got := e.lines("tool")
			slices.Sort(got)
			// cohort itself reduces once, in Init.
			if !slices.Equal(got, []string{"1 0 6", "1 7 6"}) {
				t.Errorf("%s: the tool saw %q, want 1 start, 7 sends of one rank, and 6 reductions\n%s", how, got, e.out)
			}
		}
	})
}

// includes returns the compile flags that a library's compiler command adds.
func includes(t *testing.T, compiler string, openmpi bool) (flags []string) {
	t.Helper()
	option := "-compile_info"
	if openmpi {
		option = "--showme:compile"
	}
	for _, f := range strings.Fields(runTool(t, compiler, option)) {
		if strings.HasPrefix(f, "-I") {
			flags = append(flags, f)
		}
	}
	return flags
}
