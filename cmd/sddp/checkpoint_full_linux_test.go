package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/need"
)

// fullDisk trains in a file system of its own, $1, in which there is room for the checkpoint of 3 iterations
// and none for a later one; then goes on from that one when there is. What there is to see of it goes to $2.
const fullDisk = `dir=$1 out=$2 exe=$3; shift 3
	mount -t tmpfs -o size=1m none "$dir" || exit 99
	"$exe" "$@" --checkpoint "$dir" --iterations 3 >/dev/null || exit 98
	head -c 2000000 /dev/zero >"$dir/filler" 2>/dev/null
	rm "$dir"/checkpoint-000003.bin && truncate -s -4K "$dir/filler" || exit 97
	"$exe" "$@" --checkpoint "$dir" --checkpoint-every 3 >"$out/result" 2>"$out/said"; echo $? >"$out/status"
	ls -A "$dir" >"$out/left"
	rm "$dir/filler"
	exec "$exe" "$@" --resume "$dir" --checkpoint-every 3`

// When the disk is full after the first checkpoint, that one stays; the training comes to its end and says
// what is not there, and another goes on from what is.
func TestCheckpointDiskFull(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		err = exec.Command(unshare, "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).Run()
	}
	if err != nil {
		need.MissingRight(t, "a process cannot have a file system of its own here, which takes unshare and root: %v", err)
	}
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
		t.Errorf("in the folder is %q, want the first checkpoint and what fills it", left)
	}
	same("going on", string(last))
	if !strings.Contains(errs.String(), "sddp: going on after iteration 3") {
		t.Errorf("going on, it says %s", errs.String())
	}
}
