package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// fullDisk trains in a separate file system, $1, with room for the checkpoint of 3 iterations but not for a
// later one. Then it makes room and resumes. The outputs go to $2.
const fullDisk = `dir=$1 out=$2 exe=$3; shift 3
	mount -t tmpfs -o size=1m none "$dir" || exit 99
	"$exe" "$@" --checkpoint "$dir" --iterations 3 >/dev/null || exit 98
	head -c 2000000 /dev/zero >"$dir/filler" 2>/dev/null
	rm "$dir"/checkpoint-000003.bin && truncate -s -4K "$dir/filler" || exit 97
	"$exe" "$@" --checkpoint "$dir" --checkpoint-every 3 >"$out/result" 2>"$out/said"; echo $? >"$out/status"
	ls -A "$dir" >"$out/left"
	rm "$dir/filler"
	exec "$exe" "$@" --resume "$dir" --checkpoint-every 3`

// fullOutput writes results to a separate file system, $1, that is first full, then has room for one page,
// which the check before the work needs, and then is read-only. The outputs go to $2.
const fullOutput = `dir=$1 out=$2 exe=$3; shift 3
	try() {
		"$exe" "$@" --out "$dir" >"$out/result-$which" 2>"$out/said-$which"; echo $? >"$out/status-$which"
		ls -A "$dir" >"$out/left-$which"
	}
	mount -t tmpfs -o size=1m none "$dir" || exit 99
	head -c 2000000 /dev/zero >"$dir/filler" 2>/dev/null
	which=full; try "$@"
	truncate -s -4K "$dir/filler" || exit 97
	which=page; try "$@"
	rm "$dir/filler"; mount -o remount,ro "$dir" || exit 96
	which=readonly; try "$@"`

// Results that cannot be written give status 1 and an error with the path, before the work if the folder
// accepts no file, otherwise at the end. No file is left.
func TestFullDiskFailsWithPath(t *testing.T) {
	unshare := ownMounts(t)
	dir, out := t.TempDir(), t.TempDir()
	cmd := commandOf(t, "train", caseDir("toy"), "--iterations", "2", "--scenarios", "4")
	cmd.Args = append([]string{unshare, "-m", "sh", "-c", fullOutput, "sh", dir, out, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = unshare
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, k := range []struct {
		which, said, why, left string
		works                  bool
	}{
		{"full", "sddp: output folder " + dir + ": cannot write files there: ", "no space left on device", "filler\n", false},
		{"page", "sddp: write " + dir + "/", "no space left on device", "filler\n", true},
		{"readonly", "sddp: output folder " + dir + ": cannot write files there: ", "read-only file system", "", false},
	} {
		got := map[string]string{}
		for _, name := range []string{"result", "said", "status", "left"} {
			b, err := os.ReadFile(filepath.Join(out, name+"-"+k.which))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = string(b)
		}
		lines := strings.Split(strings.TrimSuffix(got["said"], "\n"), "\n")
		last := lines[len(lines)-1]
		if got["status"] != "1\n" || !strings.HasPrefix(last, k.said) || !strings.HasSuffix(last, k.why) || got["result"] != "" {
			t.Errorf("%s: status %s, output %q, said last %q; want 1, nothing, %q and %q", k.which, got["status"], got["result"], last, k.said, k.why)
		}
		if strings.Contains(got["said"], "lower bound") != k.works {
			t.Errorf("%s: it says %s", k.which, got["said"])
		}
		if got["left"] != k.left {
			t.Errorf("%s: in the folder is %q, want %q", k.which, got["left"], k.left)
		}
	}
}

// ownMounts returns the command that gives a process its own mounts.
func ownMounts(t *testing.T) string {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		err = exec.Command(unshare, "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).Run()
	}
	if err != nil {
		need.MissingRight(t, "a process cannot have its own mounts, which needs unshare and root: %v", err)
	}
	return unshare
}

// When the disk is full after the first checkpoint, that one stays. The training finishes and reports the
// missing ones, and another training resumes from the first.
func TestTrainingEndsOnFullDiskAndResumes(t *testing.T) {
	unshare := ownMounts(t)
	want := checkpointResult(t, checkpointArgs)
	dir, out := t.TempDir(), t.TempDir()
	cmd := commandOf(t, checkpointArgs...)
	cmd.Args = append([]string{unshare, "-m", "sh", "-c", fullDisk, "sh", dir, out, cmd.Path}, checkpointArgs...)
	cmd.Path = unshare
	var errs strings.Builder
	cmd.Stderr = &errs
	last, err := cmd.Output()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	same := func(which, text string) {
		got := lastLine(t, text)
		got.Seconds, got.Ranks = want.Seconds, want.Ranks
		if got != want {
			t.Errorf("%s: got %+v, want %+v", which, got, want)
		}
	}
	same("on a full disk", read("result"))
	var said []string
	for line := range strings.Lines(read("said")) {
		if strings.HasPrefix(line, "sddp: ") && strings.Contains(line, "checkpoint") {
			said = append(said, line)
		}
	}
	warning, end := "sddp: warning: checkpoint "+filepath.Join(dir, "checkpoint-000006.bin")+": ", "sddp: checkpoint "+filepath.Join(dir, "checkpoint-000012.bin")+": "
	const why = "no space left on device\n"
	if status := read("status"); status != "1\n" || len(said) != 2 || !strings.HasPrefix(said[0], warning) || !strings.HasPrefix(said[1], end) ||
		!strings.HasSuffix(said[0], why) || !strings.HasSuffix(said[1], why) {
		t.Errorf("status %s, said %q, want 1, %q and %q, both with %q", status, said, warning, end, why)
	}
	if left := read("left"); left != "checkpoint-000003.bin\nfiller\n" {
		t.Errorf("in the folder is %q, want the first checkpoint and the filler", left)
	}
	same("going on", string(last))
	if !strings.Contains(errs.String(), "sddp: resuming after iteration 3") {
		t.Errorf("resumed, it printed %s", errs.String())
	}
}
