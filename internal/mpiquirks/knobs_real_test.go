package mpiquirks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// compiled compiles a program of testdata.
func compiled(t *testing.T, compiler, source string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	if b, err := exec.Command(compiler, "-Wall", "-O1", "-o", out, filepath.Join("testdata", source)).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", compiler, source, err, b)
	}
	return out
}

func output(t *testing.T, env []string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", command, err, b, &errs)
	}
	return string(b)
}

// TestOpenMPIHasVariablesAndAlgorithms compares the tables with the library's own list.
func TestOpenMPIHasVariablesAndAlgorithms(t *testing.T) {
	params, version := make(map[string]bool), ""
	found := make(map[string][]string)
	for line := range strings.Lines(output(t, nil, filepath.Join(filepath.Dir(mpitest.Of(t, mpifind.OpenMPI).Start()[0]), "ompi_info"), "--all", "--parsable")) {
		line = strings.TrimSuffix(line, "\n")
		if v, ok := strings.CutPrefix(line, "ompi:version:full:"); ok {
			version = v
		}
		_, rest, ok := strings.Cut(line, ":param:")
		if !ok {
			continue
		}
		name, rest, _ := strings.Cut(rest, ":")
		params[name] = true
		if rest, ok := strings.CutPrefix(rest, "enumerator:value:"); ok {
			_, value, _ := strings.Cut(rest, ":")
			found[name] = append(found[name], value)
		}
	}
	r := ParseRelease(version)
	if !r.known || len(params) < 100 {
		t.Fatalf("ompi_info of version %q lists %d variables", version, len(params))
	}
	for _, k := range knobs {
		if name, ok := strings.CutPrefix(k.name, "OMPI_MCA_"); ok && k.has(OpenMPI, r) && !params[name] {
			t.Errorf("Open MPI %s does not have %s", version, name)
		}
	}
	for coll, list := range ompiAlgorithms {
		name := "coll_tuned_" + mpiName(coll) + "_algorithm"
		want := []string{"ignore"}
		for _, a := range list {
			if r.within(a.from, a.before) {
				want = append(want, a.name)
			}
		}
		if got := found[name]; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s of Open MPI %s has %v, want %v", name, version, got, want)
		}
	}
}

// mpichVariables returns the descriptions of MPICH's variables, and its version.
func mpichVariables(t *testing.T, mpich mpitest.Launcher) (about map[string]string, version string) {
	t.Helper()
	about = make(map[string]string)
	for line := range strings.Lines(output(t, nil, compiled(t, mpich.Compiler(t), "cvars.c"))) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if name == "library" {
			_, version = Identify(strings.ReplaceAll(text, "|", "\n"))
		}
		about[name] = text
	}
	return about, version
}

// TestMPICHHasVariablesAndAlgorithms compares the tables with the variables that MPICH lists
// through MPI_T, whose descriptions name the algorithms.
func TestMPICHHasVariablesAndAlgorithms(t *testing.T) {
	about, version := mpichVariables(t, mpitest.Of(t, mpifind.MPICH))
	r := ParseRelease(version)
	if !r.known || len(about) < 100 {
		t.Fatalf("MPICH %q lists %d variables", version, len(about))
	}
	for _, k := range knobs {
		if strings.HasPrefix(k.name, "MPIR_CVAR_") && k.has(MPICH, r) && about[k.name] == "" {
			t.Errorf("MPICH %s does not have %s", version, k.name)
		}
	}
	for coll, list := range mpichAlgorithms {
		name := "MPIR_CVAR_" + strings.ToUpper(mpiName(coll)) + "_INTRA_ALGORITHM"
		for _, a := range list {
			described := regexp.MustCompile(regexp.QuoteMeta(a.name) + ` *- Force `)
			if r.within(a.from, a.before) && !described.MatchString(about[name]) {
				t.Errorf("%s of MPICH %s does not have %s: %s", name, version, a.name, about[name])
			}
		}
	}
}

// TestEagerLimitTakesEffect checks that a message of half the limit is sent before its receive is
// posted, and one of twice the limit is not. The default limits are below 8 KiB on one node.
func TestEagerLimitTakesEffect(t *testing.T) {
	const limit = 40000
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		lib := l.Library
		env := variablesSet(t, Settings{EagerLimit: limit}, lib.Family, lib.Vendor, lib.Version, nil)
		program := compiled(t, l.Compiler(t), "eager.c")
		got := output(t, env, append(l.Args(2), program, "20000", "80000")...)
		if want := "20000 eager, 80000 not\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestMPICHAcceptsTuningNames checks that MPI_Init accepts every name in the lists. It fails on any
// other name.
func TestMPICHAcceptsTuningNames(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: MPICH takes every algorithm of the lists; make test-all runs it")
	}
	mpich := mpitest.Of(t, mpifind.MPICH)
	program, launcher := compiled(t, mpich.Compiler(t), "eager.c"), mpich.Start()[0]
	_, version := mpichVariables(t, mpich)
	r := ParseRelease(version)
	for i := 0; ; i++ { // the i-th of each list, or its last
		tuning, more := make(map[string]string), false
		for coll, list := range mpichAlgorithms {
			list = slices.DeleteFunc(slices.Clone(list), func(a algorithm) bool { return !r.within(a.from, a.before) })
			tuning[mpiName(coll)] = list[min(i, len(list)-1)].name
			more = more || i+1 < len(list)
		}
		env := variablesSet(t, Settings{Tuning: tuning}, mpifind.MPICH, "MPICH", version, nil)
		if want := len(everywhere) + int(backend.Exscan); len(env) != want {
			t.Fatalf("%d settings, want %d: %v", len(env), want, env)
		}
		output(t, env, launcher, "-n", "2", program, "8", "8")
		if !more {
			break
		}
	}
	cmd := exec.Command(launcher, "-n", "2", program, "8", "8")
	cmd.Env = append(os.Environ(), "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=none_such")
	if b, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("MPICH takes any name:\n%s", b)
	}
}
