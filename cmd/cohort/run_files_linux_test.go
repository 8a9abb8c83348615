package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRun_TooFewDescriptors has the launcher say what the limit has to be, and takes it at its word.
func TestRun_TooFewDescriptors(t *testing.T) {
	hello := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", hello, "../../examples/hello").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	limited := func(limit string, args ...string) (status int, stdout, stderr string) {
		cmd := cohortCommand(t, args...)
		// Descriptors from outside have no place in what is counted.
		script := `exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n "$1" && shift && exec "$@"`
		cmd.Args = append([]string{"sh", "-c", script, "sh", limit, cmd.Path}, cmd.Args[1:]...)
		var err error
		if cmd.Path, err = exec.LookPath("sh"); err != nil {
			t.Fatal(err)
		}
		return finish(t, cmd)
	}
	advice := regexp.MustCompile(`too many open files: starting \d ranks takes \d+ more, and \d+ can be opened; the limit is 24: raise it with ulimit -n (\d+)\n`)
	for _, c := range []struct{ backend, ranks string }{{"shm", "3"}, {"shm", "5"}, {"shm", "8"}, {"tcp", "3"}, {"tcp", "5"}, {"tcp", "8"}} {
		line := []string{"run", "--backend", c.backend, "--bind", "none", "-n", c.ranks, hello}
		status, stdout, stderr := limited("24", line...)
		said := advice.FindStringSubmatch(stderr)
		if status == 0 || stdout != "" || said == nil {
			t.Errorf("%q with 24 descriptors: status %d\n%s%s", line, status, stdout, stderr)
			continue
		}
		status, stdout, stderr = limited(said[1], line...)
		if status != 0 || strings.Count(stdout, " of "+c.ranks+" ") != int(c.ranks[0]-'0') {
			t.Errorf("%q with %s descriptors: status %d\n%s%s", line, said[1], status, stdout, stderr)
		}
	}
	// So few that there is no place for the keeper, or for what the launcher reads before it.
	if status, stdout, stderr := limited("10", "run", "-n", "2", hello); status == 0 || stdout != "" || !strings.Contains(stderr, "too many open files") {
		t.Errorf("with 10 descriptors: status %d\n%s%s", status, stdout, stderr)
	}
}
