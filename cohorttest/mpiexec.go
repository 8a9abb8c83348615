package cohorttest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Mpiexec launches ranks by an MPI launcher: the test's own binary again, with the
// same test, in which [Test] or [Bits] finds that it is a rank.
type Mpiexec struct {
	Label   string   // what the tests are called after
	Command []string // the launcher and its arguments but for the number of ranks, which -n tells it
	Env     []string // more variables, NAME=value
	Sizes   []int    // numbers of ranks; nil: those of Test

	// From so many ranks on the matrix of lengths and types is the smaller one, as with -short; 0: from none.
	// It is for libraries whose ranks spin where they are more than processors: each call takes them
	// long, and what the smaller matrix leaves out does not depend on how many ranks there are.
	ShortFrom int

	// Leaves has what the library leaves in /dev/shm when a rank is lost, as patterns of path.Match, for [Faults]. It
	// removes the job's files that fit one, and such as have come during the job and are used by no process: of a file
	// that a rank mapped after its last report nobody knows whose it was. It finds them in /proc, so on Linux only.
	Leaves []string

	// Skips has scenarios that cannot be run, by name or by a prefix that ends in
	// "*", and why.
	Skips map[string]string
}

// Name implements [Launcher].
func (m Mpiexec) Name() string { return m.Label }

// Skip implements [Skipper].
func (m Mpiexec) Skip(scenario string, _ int) string {
	for name, why := range m.Skips {
		prefix, all := strings.CutSuffix(name, "*")
		if name == scenario || all && strings.HasPrefix(scenario, prefix) {
			return why
		}
	}
	return ""
}

// Launch implements [Launcher].
func (m Mpiexec) Launch(t testing.TB, job *Job) error {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	args := append(m.Command[1:len(m.Command):len(m.Command)], "-n", strconv.Itoa(job.Ranks), exe, "-test.run=^"+test+"$")
	cmd := exec.Command(m.Command[0], args...)
	cmd.Env = append(os.Environ(), job.Environ()...)
	if racing && os.Getenv("GORACE") == "" {
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // otherwise every rank sleeps a second
	}
	cmd.Env = append(cmd.Env, m.Env...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	// A process that keeps the pipe open must not keep the test waiting.
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.String())
	}
	return nil
}
