package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// TestDoctorReportsWhatHeadersOfLibrariesState compares the doctor's report on the libraries of this
// machine with their own headers.
func TestDoctorReportsWhatHeadersOfLibrariesState(t *testing.T) {
	if !mpiBuilt {
		t.Skip("the mpi backend is not in this build (tag cohort_nompi, or no cgo)")
	}
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		if !mpitest.Turn(0, l.Library.Vendor) {
			t.Skip("left out with -short: doctor with a second library; make test-all runs it")
		}
		compiler, path, vendor, launcher := l.Compiler(t), l.Library.Path, l.Library.Vendor, filepath.Base(l.Start()[0])
		cmd := cohortCommand(t, "doctor", "--json")
		cmd.Env = append(cmd.Env, "COHORT_MPI_LIB="+path)
		_, stdout, stderr := finish(t, cmd)
		var out struct{ Findings []finding }
		if err := json.Unmarshal([]byte(stdout), &out); err != nil {
			t.Fatalf("%v:\n%s%s", err, stdout, stderr)
		}
		var got *report
		var job, choice finding
		for _, f := range out.Findings {
			switch {
			case f.Library != nil && f.Library.Path == path:
				if f.State != ok || !strings.HasPrefix(f.Name, vendor+" ") {
					t.Errorf("%+v", f)
				}
				got = f.Library
			case f.Group == "backends" && f.Name == "mpi":
				job = f
			case f.Name == "first choice":
				choice = f
			}
		}
		if got == nil {
			t.Fatalf("no finding on %s:\n%s", path, stdout)
		}
		if filepath.Base(got.Launcher) != launcher || !strings.Contains(choice.Value, "asked for by COHORT_MPI_LIB") {
			t.Errorf("started by %s; %+v", got.Launcher, choice)
		}
		if job.State != ok || !strings.HasPrefix(job.Value, vendor) {
			t.Errorf("a job of two: %+v", job)
		}
		header := exec.Command(compiler, "-E", "-include", "mpi.h", "-")
		header.Stdin = strings.NewReader("standard MPI_VERSION MPI_SUBVERSION\n")
		text, err := header.Output()
		if err != nil {
			t.Fatal(err)
		}
		var major, minor int
		if _, err := fmt.Sscanf(string(text[bytes.LastIndex(text, []byte("standard ")):]), "standard %d %d", &major, &minor); err != nil {
			t.Fatal(err)
		}
		has := func(name string) bool { return bytes.Contains(text, []byte(" "+name+"(")) }
		persistent := ""
		if has("MPI_Bcast_init") {
			persistent = "MPI_"
		}
		if want := fmt.Sprintf("%d.%d", major, minor); got.Standard != want || got.LargeCounts != has("MPI_Bcast_c") {
			t.Errorf("MPI %s, large counts %v, want %s, %v", got.Standard, got.LargeCounts, want, has("MPI_Bcast_c"))
		}
		if got.Persistent != persistent && got.Persistent != "MPIX_" {
			t.Errorf("persistent collectives %q, want %q", got.Persistent, persistent)
		}
		if !strings.Contains(got.Says, vendor) || got.ThreadLevel != "multiple" || got.CUDA == "yes" {
			t.Errorf("%+v", got)
		}
	})
}

// TestDoctorNamesLibraryByVersion has libraries whose files contain the version or not, loaded or not.
func TestDoctorNamesLibraryByVersion(t *testing.T) {
	mpich := mpifind.Library{Family: mpifind.MPICH, Runtime: mpifind.MPICH, Vendor: "MPICH"}
	reported := mpich
	reported.Version = "4.0.2"
	for _, c := range []struct {
		lib           mpifind.Library
		message, want string
	}{
		{mpich, "MPICH 4.2.1", "MPICH 4.2.1"},
		{mpich, "", "MPICH"},
		{reported, "MPICH 4.0.2-of-others", "MPICH 4.0.2"},
		{reported, "", "MPICH 4.0.2"},
	} {
		r := report{Says: c.message}
		if got := r.title(c.lib); got != c.want {
			t.Errorf("%+v with the name %q: got %q, want %q", c.lib, c.message, got, c.want)
		}
	}
}

// TestDoctorSurvivesBadLibraries has libraries crash, hang and fail when they are loaded.
func TestDoctorSurvivesBadLibraries(t *testing.T) {
	if !mpiBuilt {
		t.Skip("the mpi backend is not in this build (tag cohort_nompi, or no cgo)")
	}
	gcc := need.Program(t, "gcc")
	t.Setenv(envCommand, "1")
	for _, c := range []struct{ name, body, message string }{
		{"crash", "__attribute__((constructor)) static void f(void) { *(volatile int *)0 = 1; }", "a process that loaded it crashed: SIGSEGV"},
		{"hang", "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { for (;;) pause(); }", "a process that loaded it: it hung, and was ended after 2s"},
		{"bare", "", "MPI_"}, // it lacks all other functions: one of them is named
	} {
		dir := t.TempDir()
		source, library := filepath.Join(dir, "lib.c"), filepath.Join(dir, "libmpi.so.12")
		if err := os.WriteFile(source, []byte("int MPI_Init(void) { return 0; }\n"+c.body+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(gcc, "-shared", "-fPIC", "-Wl,-soname,libmpi.so.12", "-o", library, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		limit := describeLimit
		if c.name == "hang" {
			limit = 2 * time.Second
		}
		r := report{Path: library}
		if err := r.learn(limit, nil); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %v, %+v, want %q", c.name, err, r, c.message)
		}
	}
}

func TestDoctorReportsMismatchOfLauncherAndLibrary(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mpich/mpiexec.hydra", "ompi/orterun"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Base(file), filepath.Join(filepath.Dir(file), "mpiexec")); err != nil {
			t.Fatal(err)
		}
	}
	lib := mpifind.Library{Path: dir + "/libmpi.so.40", Family: mpifind.OpenMPI, Runtime: mpifind.OpenMPI, Vendor: "Open MPI", Version: "4.1.4"}
	for _, c := range []struct {
		path, asked     string
		want            state
		message, advice string
	}{
		{"ompi", "", ok, "belongs to the Open MPI family and matches Open MPI 4.1.4", ""},
		{"mpich", "", warn, "belongs to the MPICH family, but Open MPI 4.1.4 is found first", "cohort run --backend mpi"},
		{"mpich", lib.Path, warn, "COHORT_MPI_LIB names Open MPI 4.1.4: programs that it starts will refuse to run", "unset COHORT_MPI_LIB"},
		{"none", "", warn, "neither mpiexec nor mpirun is in PATH", "cohort run --backend mpi"},
	} {
		var d diagnosis
		d.launchers(lib, c.asked != "", func(name string) (string, bool) {
			if name == "PATH" {
				return filepath.Join(dir, c.path), true
			}
			return "", false
		})
		if len(d.all) != 1 || d.all[0].State != c.want || !strings.Contains(d.all[0].Value, c.message) || !strings.Contains(d.all[0].Advice, c.advice) {
			t.Errorf("%s: got %+v, want %s: %s", c.path, d.all, c.want, c.message)
		}
	}
	for _, bad := range []string{dir + "/none.so", dir + "/ompi/orterun"} {
		var d diagnosis
		d.mpi(func(name string) (string, bool) {
			return map[string]string{"COHORT_MPI_LIB": bad}[name], name == "COHORT_MPI_LIB"
		})
		if len(d.all) != 1 || d.all[0].State != fail || !strings.Contains(d.all[0].Value, bad) {
			t.Errorf("%s: %+v", bad, d.all)
		}
	}
}
