package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// ownMounts returns the command that gives a process file systems of its own.
func ownMounts(t *testing.T) (unshare string) {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		err = exec.Command(unshare, "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "none", t.TempDir()).Run()
	}
	if err != nil {
		need.MissingRight(t, "a process cannot have a file system of its own here, which takes unshare and root: %v", err)
	}
	return unshare
}

// staysIn is what the launcher says of files that it cannot write.
var staysIn = regexp.MustCompile(`no space left on device; they stay in (/dev/shm/cohort-flight-\d+)\n`)

// TestRunSucceedsWithFullDisk makes the folder for the flight recorder's files, or /dev/shm, a full file system of
// 64 KiB: the job succeeds, and the launcher reports the files that it could not write.
func TestRunSucceedsWithFullDisk(t *testing.T) {
	unshare := ownMounts(t)
	type job struct {
		backend, full string // which of the two file systems has no room: folder or shm
		message       string
	}
	for _, c := range sample([]job{
		{"shm", "folder", "no space left on device"}, {"tcp", "folder", "no space left on device"},
		{"shm", "shm", ""}, {"tcp", "shm", ""},
	}, 0, 3) {
		folder := t.TempDir()
		cmd := cohortCommand(t, hello(t, "run", "-n", "3", "--backend", c.backend, "--bind", "none", "--flight", filepath.Join(folder, "flight"))...)
		const script = `at=$0; test "$1" = folder || at=/dev/shm; shift
			mount -t tmpfs -o size=64k none "$at" && mkdir -p "$0/flight" || exit 99
			head -c 1000000 /dev/zero > "$at/filler" 2>/dev/null; exec "$@"`
		cmd.Args = append([]string{unshare, "-m", "sh", "-c", script, folder, c.full, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = unshare
		status, stdout, stderr := finish(t, cmd)
		if status != 0 || strings.Count(stdout, " of 3 ") != 3 || !strings.Contains(stderr, c.message) {
			t.Errorf("%s, %s is full: status %d\n%s%s", c.backend, c.full, status, stdout, stderr)
		}
		if said := staysIn.FindStringSubmatch(stderr); said != nil {
			os.RemoveAll(said[1])
		}
	}
}

// TestFailedJobKeepsFlightFilesInMemoryIfDiskIsFull has a full folder for the files when a job fails: they stay in
// memory, the launcher reports where, and no partial file is left in the full folder.
func TestFailedJobKeepsFlightFilesInMemoryIfDiskIsFull(t *testing.T) {
	if _, err := os.Stat(memoryFolder); err != nil {
		t.Skipf("a file system in memory is needed: %v", err)
	}
	unshare, folder := ownMounts(t), t.TempDir()
	const rank = `head -c 50000 /dev/zero > "$COHORT_FLIGHT_DIR/rank-000$COHORT_RANK.flight"
		until test "$(cat "$COHORT_FLIGHT_DIR"/rank-000[01].flight | wc -c)" = 100000; do sleep 0.01; done 2>/dev/null; exit 3`
	cmd := cohortCommand(t, "run", "-n", "2", "--bind", "none", "--flight", filepath.Join(folder, "flight"), "sh", "-c", rank)
	const script = `mount -t tmpfs -o size=64k none "$0" && mkdir "$0/flight" && echo old > "$0/flight/rank-0005.flight" || exit 99
		"$@"; status=$?; ls -A "$0/flight"; exit $status`
	cmd.Args = append([]string{unshare, "-m", "sh", "-c", script, folder, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = unshare
	status, stdout, stderr := finish(t, cmd)
	said := staysIn.FindStringSubmatch(stderr)
	if status != 3 || stdout != "" || said == nil {
		t.Fatalf("status %d, want 3, nothing in the folder, and where the files are:\n%s%s", status, stdout, stderr)
	}
	defer os.RemoveAll(said[1])
	st, err := os.Stat(filepath.Join(said[1], "rank-0000.flight"))
	if err != nil || st.Size() != 50000 {
		t.Errorf("rank 0's file is incomplete: %v", err)
	}
}

// TestNestedJobKeepsItsFlightFilesApart has a rank start another job. That job's files go to the folder in which those
// of the outer job are kept, or to the one that the rank names, and never among those of the outer job's ranks.
func TestNestedJobKeepsItsFlightFilesApart(t *testing.T) {
	if _, err := os.Stat(memoryFolder); err != nil {
		t.Skipf("a file system in memory is needed: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const rank = `echo outer > "$COHORT_FLIGHT_DIR/rank-0007.flight"; outer=$COHORT_FLIGHT_DIR
		if test -n "$1"; then export COHORT_FLIGHT_DIR="$1"; fi
		"$0" run -n 1 --tag=false sh -c 'echo "$COHORT_FLIGHT_DIR $COHORT_FLIGHT_KEPT."; echo inner > "$COHORT_FLIGHT_DIR/rank-0007.flight"'
		echo "$outer $(cat "$outer/rank-0007.flight")"`
	for _, c := range []struct{ outer, inner bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		line, kept, own := []string{"run", "-n", "1", "--tag=false"}, "", ""
		if c.outer {
			kept = t.TempDir()
			line = append(line, "--flight", kept)
		}
		want := kept
		if c.inner {
			own = t.TempDir()
			want = own
		}
		status, stdout, stderr := run(t, append(line, "sh", "-c", rank, exe, own)...)
		said := regexp.MustCompile(`^(\S+) (.*)\.\n(\S+) outer\n$`).FindStringSubmatch(stdout)
		if status != 0 || said == nil || said[1] == said[3] || said[2] != want {
			t.Errorf("%+v: status %d, want files kept in %q, and the outer job's untouched\n%s%s", c, status, want, stdout, stderr)
		}
		for folder, text := range map[string]string{kept: "outer\n", own: "inner\n"} {
			if b, err := os.ReadFile(filepath.Join(folder, "rank-0007.flight")); folder != "" && (err != nil || string(b) != text) {
				t.Errorf("%+v: what is kept is %q, want %q: %v", c, b, text, err)
			}
		}
	}
}
