package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

func init() { rankPrograms[helloProgram] = helloRank }

const helloProgram = "hello-rank"

// helloRank is a rank that prints its number, and the sum of all numbers from 1.
func helloRank(string) int {
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return 4
	}
	defer world.Close()
	sum, err := cohort.AllreduceOne(world, world.Rank()+1, cohort.Sum)
	if err != nil {
		fmt.Println(err)
		return 3
	}
	fmt.Printf("rank %d of %d (backend %s): the sum is %d\n", world.Rank(), world.Size(), world.Backend(), sum)
	return 0
}

// hello appends the program of helloRank to a command line.
func hello(t *testing.T, line ...string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append(line, exe, helloProgram, "")
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
	type job struct{ backend, ranks string }
	for _, c := range sample([]job{{"shm", "3"}, {"shm", "5"}, {"shm", "8"}, {"tcp", "3"}, {"tcp", "5"}, {"tcp", "8"}}, 1, 3) {
		line := hello(t, "run", "--backend", c.backend, "--bind", "none", "-n", c.ranks)
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
	if status, stdout, stderr := limited(t, "-n 10", hello(t, "run", "-n", "2")...); status == 0 || stdout != "" || !strings.Contains(stderr, "too many open files") {
		t.Errorf("with 10 descriptors: status %d\n%s%s", status, stdout, stderr)
	}
}

// TestRunMPIStatesDescriptorLimitItNeeds checks that nothing is started with too low a limit, with which Open MPI's
// mpirun would hang. The limit that the error names suffices, and so does a high enough hard limit.
func TestRunMPIStatesDescriptorLimitItNeeds(t *testing.T) {
	eachMPI(t, func(t *testing.T, lib mpifind.Library) {
		for i, ranks := range sample([]string{"2", "5"}, 0) {
			if !mpitest.Turn(i+1, lib.Vendor) {
				continue
			}
			line := hello(t, "run", "--backend", "mpi", "--bind", "none", "--timeout", "1m", "-n", ranks)
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
