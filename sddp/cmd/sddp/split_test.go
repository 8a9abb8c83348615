package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
	"github.com/cohort-hpc/cohort/internal/test/programs"
)

// splits are pairs of ranks and threads.
var splits = [][2]int{{2, 1}, {3, 2}, {1, 1}, {1, 2}, {2, 2}, {4, 1}}

// sampledSplits returns all splits, and the first two with -short.
func sampledSplits() [][2]int {
	if testing.Short() {
		return splits[:2]
	}
	return splits
}

// splitArgs is a training with more passes than workers, which do not divide the passes evenly.
var splitArgs = append([]string{"train", caseDir("brazil4"), "--json"},
	strings.Fields("--iterations 3 --passes 7 --openings 5 --scenarios 50")...)

// splitResult returns the result on one rank with one thread, without a launcher.
func splitResult(t *testing.T) result {
	t.Helper()
	status, out, errs := sddpRun(t, append(slices.Clone(splitArgs), "--threads", "1", "--pin", "none")...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	want := lastLine(t, out)
	if want.Iterations != 3 || want.Cuts < 11 || want.Cuts > 3*7*11 || want.Ranks != 1 {
		t.Fatalf("one rank alone: %+v", want)
	}
	return want
}

// cohortTool returns the path of the cohort command.
func cohortTool(t testing.TB) string {
	t.Helper()
	return filepath.Join(programs.Build(t, "cmd/cohort"), "cohort")
}

// sameResult runs a command that trains with the given ranks and threads, and compares all figures.
func sameResult(t *testing.T, cmd *exec.Cmd, ranks, threads int, want result) {
	t.Helper()
	cmd.Env = append(cmd.Env, asCommand+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, &out, &errs)
	}
	got := lastLine(t, out.String())
	want.Ranks, want.Seconds = ranks, got.Seconds
	if got != want {
		t.Errorf("%v: %+v, want %+v", cmd, got, want)
	}
	said := fmt.Sprintf("sddp: %d rank", ranks)
	each := fmt.Sprintf("; %d thread", threads)
	if line := errs.String(); strings.Count(line, said) != 1 || !strings.Contains(line, each) {
		t.Errorf("%v: no line, or more than one, begins with %q and has %q:\n%s", cmd, said, each, &errs)
	}
}

// The training gives the same bits for any split over processes and threads. The number of threads comes
// from the command line or the environment.
func TestSplitsOverShm(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the backend shm is for Linux")
	}
	want, tool := splitResult(t), cohortTool(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sampledSplits() {
		ranks, threads := s[0], s[1]
		args := []string{"run", "--backend", "shm", "--tag=false", "-n", strconv.Itoa(ranks), exe}
		byFlag := exec.Command(tool, slices.Concat(args, splitArgs, []string{"--threads", strconv.Itoa(threads), "--pin", "cores"})...)
		byFlag.Env = os.Environ()
		byVariable := exec.Command(tool, slices.Concat(args, splitArgs)...)
		byVariable.Env = append(os.Environ(), "COHORT_THREADS="+strconv.Itoa(threads), "COHORT_PIN=numa")
		sameResult(t, byFlag, ranks, threads, want)
		if threads > 1 || !testing.Short() {
			sameResult(t, byVariable, ranks, threads, want)
		}
	}
	alone := exec.Command(exe, append(slices.Clone(splitArgs), "--threads", "2", "--pin", "cores")...)
	alone.Env = os.Environ()
	sameResult(t, alone, 1, 2, want)
}

// Clp gives the same cuts for every split.
func TestSplitsWithClp(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: any split with Clp gives the same cuts, here over shm; make test-all runs it")
	}
	args := append(splitArgs[:len(splitArgs):len(splitArgs)], "--solver", "clp")
	status, out, errs := sddpRun(t, append(args, "--threads", "1")...)
	if status != 0 && strings.Contains(errs, "solver clp") {
		need.Missing(t, "no Clp here: %s", errs)
	}
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	want := lastLine(t, out)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{2, 3} {
		cmd := exec.Command(exe, append(args, "--threads", strconv.Itoa(threads))...)
		cmd.Env = os.Environ()
		sameResult(t, cmd, 1, threads, want)
	}
	if runtime.GOOS != "linux" {
		return
	}
	both := exec.Command(cohortTool(t), append(append([]string{"run", "--backend", "shm", "--tag=false", "-n", "2", exe}, args...), "--threads", "2")...)
	both.Env = os.Environ()
	sameResult(t, both, 2, 2, want)
}

// The default training of brazil4 has the hash in docs/adr/0004-canonical-basis.md, which is that of amd64.
func TestDefaultPolicyHasDocumentedHash(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("left out: the documented hash is that of amd64, and other architectures round differently")
	}
	if testing.Short() {
		t.Skip("left out with -short: a whole training of brazil4; make test-all runs it")
	}
	adr, err := os.ReadFile("../../../docs/adr/0004-canonical-basis.md")
	if err != nil {
		t.Fatal(err)
	}
	status, out, errs := sddpRun(t, "train", caseDir("brazil4"), "--json", "--threads", "2")
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	if hash := lastLine(t, out).CutsSHA256[:8]; !strings.Contains(string(adr), "now has the hash `"+hash+"`") {
		t.Errorf("the cuts have the hash %s…, which is not the documented one", hash)
	}
}
