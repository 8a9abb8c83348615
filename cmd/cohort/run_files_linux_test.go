package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// buildHello builds a program that prints its rank.
func buildHello(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", path, "../../examples/hello").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// limited is run under a limit of ulimit.
func limited(t *testing.T, limit string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := cohortCommand(t, args...)
	// Descriptors from outside have no place in what is counted.
	script := `exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit $1 && shift && exec "$@"`
	cmd.Args = append([]string{"sh", "-c", script, "sh", limit, cmd.Path}, cmd.Args[1:]...)
	var err error
	if cmd.Path, err = exec.LookPath("sh"); err != nil {
		t.Fatal(err)
	}
	return finish(t, cmd)
}

// advice is what is said of too low a limit.
var advice = regexp.MustCompile(`too many open files: starting \d ranks(?: by mpi\S+)? takes \d+ more, and \d+ can be opened; the limit is 24: raise it with ulimit -n (\d+)\n`)

// TestRunStatesDescriptorLimitItNeeds checks that the error names the necessary limit, and that this limit suffices.
func TestRunStatesDescriptorLimitItNeeds(t *testing.T) {
	hello := buildHello(t)
	type job struct{ backend, ranks string }
	for _, c := range sample([]job{{"shm", "3"}, {"shm", "5"}, {"shm", "8"}, {"tcp", "3"}, {"tcp", "5"}, {"tcp", "8"}}, 1, 3) {
		line := []string{"run", "--backend", c.backend, "--bind", "none", "-n", c.ranks, hello}
		status, stdout, stderr := limited(t, "-n 24", line...)
		said := advice.FindStringSubmatch(stderr)
		if status == 0 || stdout != "" || said == nil {
			t.Errorf("%q with 24 descriptors: status %d\n%s%s", line, status, stdout, stderr)
			continue
		}
		status, stdout, stderr = limited(t, "-n "+said[1], line...)
		if status != 0 || strings.Count(stdout, " of "+c.ranks+" ") != int(c.ranks[0]-'0') {
			t.Errorf("%q with %s descriptors: status %d\n%s%s", line, said[1], status, stdout, stderr)
		}
	}
	// So few that there is no place for the keeper, or for what the launcher reads before it.
	if status, stdout, stderr := limited(t, "-n 10", "run", "-n", "2", hello); status == 0 || stdout != "" || !strings.Contains(stderr, "too many open files") {
		t.Errorf("with 10 descriptors: status %d\n%s%s", status, stdout, stderr)
	}
}

// TestRunMPIStatesDescriptorLimitItNeeds checks that nothing is started with too low a limit, with which Open MPI's
// mpirun would hang. The limit that the error names suffices, and so does a high enough hard limit.
func TestRunMPIStatesDescriptorLimitItNeeds(t *testing.T) {
	hello := buildHello(t)
	eachMPI(t, func(t *testing.T, lib mpifind.Library) {
		for _, ranks := range sample([]string{"2", "5"}, 0) {
			line := []string{"run", "--backend", "mpi", "--bind", "none", "--timeout", "1m", "-n", ranks, hello}
			status, stdout, stderr := limited(t, "-n 24", line...)
			said := advice.FindStringSubmatch(stderr)
			if status != cli.StatusUsage || stdout != "" || said == nil {
				t.Errorf("%q with 24 descriptors: status %d\n%s%s", line, status, stdout, stderr)
				continue
			}
			limit := "-n " + said[1]
			if ranks == "2" {
				limit = "-S -n 24"
			}
			status, stdout, stderr = tryMPI(t, func() (int, string, string) { return limited(t, limit, line...) })
			if status != 0 || strings.Count(stdout, " of "+ranks+" ") != int(ranks[0]-'0') {
				t.Errorf("%q with ulimit %s: status %d\n%s%s", line, limit, status, stdout, stderr)
			}
		}
	})
}
