package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// folderIs checks the files of a folder and their contents.
func folderIs(t *testing.T, folder string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != len(want) {
		t.Errorf("%d files, want %d: %v", len(entries), len(want), err)
	}
	for name, text := range want {
		if b, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(b) != text {
			t.Errorf("%s: %q, want %q: %v", name, b, text, err)
		}
	}
}

// outputIsKept runs a job of two ranks, whose output goes to the terminal and to files that replace those of another job.
func outputIsKept(t *testing.T, line ...string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "a", "b")
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	write("rank.1.out")
	write("rank.7.err")
	write("rank.07.err")
	const rank = `echo out $1; echo '{}'; printf 'no newline'; echo err $1 >&2`
	line = append(append([]string{"run", "-n", "2", "--bind", "none", "--output", folder}, line...), "sh", "-c", rank, "sh", "arg")
	status, stdout, stderr := run(t, line...)
	tag := func(rank string) string { return "[" + rank + "] " }
	if strings.Contains(strings.Join(line, " "), "--tag=false") {
		tag = func(string) string { return "" }
	}
	for _, r := range []string{"0", "1"} {
		for _, want := range []string{tag(r) + "out arg\n", tag(r) + "no newline", "{}\n"} {
			if status != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%q: status %d, want %q\n%s%s", line, status, want, stdout, stderr)
			}
		}
		if !strings.Contains(stderr, tag(r)+"err arg\n") {
			t.Errorf("%q: want rank %s's standard error\n%s", line, r, stderr)
		}
	}
	out, errs := "out arg\n{}\nno newline", "err arg\n"
	folderIs(t, folder, map[string]string{"rank.0.out": out, "rank.1.out": out, "rank.0.err": errs, "rank.1.err": errs, "rank.07.err": "old"})
}

func TestOutputOfEachRankIsKept(t *testing.T) {
	outputIsKept(t)
	outputIsKept(t, "--tag=false", "--backend", "tcp")
	n := newNetwork(t)
	outputIsKept(t, n.ssh, "--hosts", "127.0.0.1,127.0.0.2")
	n.nothingLeft(t)
}

func TestOutputOfMPIRanksIsKept(t *testing.T) {
	eachMPI(t, func(t *testing.T, lib mpifind.Library) {
		if mpitest.Turn(0, lib.Vendor) {
			outputIsKept(t, "--backend", "mpi")
		}
	})
}

func TestOutputFolderThatCannotBeMadeStartsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	started := file + "-started"
	status, _, stderr := run(t, "run", "-n", "2", "--output", filepath.Join(file, "in"), "touch", started)
	if _, err := os.Stat(started); err == nil || status != 2 || !strings.Contains(stderr, "--output: mkdir "+file+": not a directory\n") {
		t.Errorf("status %d, started: %t\n%s", status, err == nil, stderr)
	}
}

// TestEarlierFilesAreKeptWhereNothingStarts has jobs fail before their ranks start, for reasons that are found late.
func TestEarlierFilesAreKeptWhereNothingStarts(t *testing.T) {
	n, folder := newNetwork(t), t.TempDir()
	t.Setenv("COHORT_MPI_LIB", "/no/libmpi.so")
	old, recorded := filepath.Join(folder, "rank.0.out"), filepath.Join(folder, flight.FileName(0))
	for _, name := range []string{old, recorded} {
		if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range [][]string{
		{"run", "--backend", "mpi", "-n", "2", "--output", folder, "true"},
		n.line("--hosts", "127.0.0.1,127.0.0.2", "-n", "2", "--output", folder, "no-such-command"),
		n.line("--hosts", "127.0.0.1,127.0.0.2", "-n", "2", "--output", old, "true"),
	} {
		line = slices.Insert(line, 1, "--stats", "--flight", folder)
		if status, _, stderr := run(t, line...); status != 2 || strings.Contains(stderr, "statistics") {
			t.Errorf("%q: status %d, want 2\n%s", line, status, stderr)
		}
		for _, name := range []string{old, recorded} {
			if b, err := os.ReadFile(name); err != nil || string(b) != "old" {
				t.Errorf("%q: %s is %q: %v", line, name, b, err)
			}
		}
		n.nothingLeft(t)
	}
}

// TestFullOutputFolderEndsJob has rank 1 write more than there is room for. The job ends, and its message names the file. The
// terminal has what rank 1 wrote, and the files what there was room for.
func TestFullOutputFolderEndsJob(t *testing.T) {
	unshare, folder := ownMounts(t), t.TempDir()
	n := newNetwork(t)
	for _, where := range [][]string{{"--bind", "none"}, {n.ssh, "--hosts", "127.0.0.1,127.0.0.2"}} {
		const rank = `if test $COHORT_RANK = 1; then head -c 300000 /dev/zero | tr '\0' x; echo; fi; exec sleep 1000`
		cmd := cohortCommand(t, append(append([]string{"run", "-n", "2", "--output", folder}, where...), "sh", "-c", rank)...)
		const script = `mount -t tmpfs -o size=64k none "$0" || exit 99; "$@"; status=$?; cat "$0/rank.1.out" | wc -c; exit $status`
		cmd.Args = append([]string{unshare, "-m", "sh", "-c", script, folder, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = unshare
		status, stdout, stderr := finish(t, cmd)
		want := "cohort: the ranks' output cannot be written (write " + folder + "/rank.1.out: no space left on device)"
		if status != 1 || !strings.Contains(stderr, want) || strings.Count(stdout, "x") == 0 || !strings.HasSuffix(stdout, "\n65536\n") {
			t.Errorf("%q: status %d, %d bytes, end %q\n%s", where, status, len(stdout), stdout[max(0, len(stdout)-20):], stderr)
		}
	}
	n.nothingLeft(t)
}

func TestOnlySomeRanksAreShown(t *testing.T) {
	n := newNetwork(t)
	for _, c := range []struct{ more, stdout string }{
		{"--show=0,2-3", "[0] 0\n[2] 2\n[3] 3\n"},
		{"--show=none --tag=false", ""},
		{"--show=1 --tag=false", "1\n"},
		{"--show=1-2 --hosts=127.0.0.1,127.0.0.2", "[1] 1\n[2] 2\n"},
	} {
		folder := t.TempDir()
		line := append([]string{"run", "-n", "4", "--output", folder}, strings.Fields(c.more)...)
		if strings.Contains(c.more, "hosts") {
			line = append(line, n.ssh)
		} else {
			line = append(line, "--bind=none")
		}
		status, stdout, stderr := run(t, append(line, "sh", "-c", "echo $COHORT_RANK; echo e$COHORT_RANK >&2")...)
		if status != 0 || !sameLines(stdout, c.stdout) || strings.Count(stderr, "e") != 4 {
			t.Errorf("%s: status %d, want %q and 4 lines of errors\n%s%s", c.more, status, c.stdout, stdout, stderr)
		}
		if b, err := os.ReadFile(filepath.Join(folder, "rank.3.out")); err != nil || string(b) != "3\n" {
			t.Errorf("%s: rank 3's file is %q: %v", c.more, b, err)
		}
	}
	n.nothingLeft(t)
	for show, want := range map[string]string{"4": "rank 4 is not in this job of 4", "some": "--show some: want ranks such as 0,3-5, or none", "2-1": "want ranks"} {
		if status, stdout, stderr := run(t, "run", "-n", "4", "--show", show, "echo"); status != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("--show %s: status %d, want 2 and %q\n%s%s", show, status, want, stdout, stderr)
		}
	}
}
