package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Launcher starts the ranks of a job.
type Launcher interface {
	// Name is the launcher's name in messages.
	Name() string
	// Launch starts job.Ranks ranks. Each calls job.Run with its world. Launch
	// returns when all of them have ended and nothing of them is left. The error
	// joins ([errors.Join]) one error for each rank that failed, whose text begins
	// with the rank ("rank 3: "), and any other error.
	Launch(t testing.TB, job *Job) error
}

// Skipper is implemented by launchers of backends that cannot run every scenario.
type Skipper interface {
	// Skip returns why a scenario cannot be run with this number of ranks: which
	// library, which version, what it does wrong. It returns "" if it can be run.
	Skip(scenario string, ranks int) string
}

// Sizer is implemented by launchers that are tested with other numbers of ranks than others.
type Sizer interface {
	// Ranks returns the numbers of ranks, or those of the smaller matrix. nil means the usual ones.
	Ranks(small bool) []int
	// Whole reports whether this number of ranks gets the whole matrix without -short. It usually does below 7.
	Whole(ranks int) bool
}

// Goroutines launches ranks as goroutines of the test's process, with [cohort.Run].
type Goroutines struct{}

// Name implements [Launcher].
func (Goroutines) Name() string { return "goroutines" }

// Launch implements [Launcher].
func (Goroutines) Launch(t testing.TB, job *Job) error {
	before := snapshot()
	err := cohort.Run(context.Background(), job.Ranks, job.Run)
	if left := before.left(); left != "" {
		err = errors.Join(fmt.Errorf("the job leaves behind:\n%s", left), err)
	}
	return err
}

// Mpiexec launches ranks with an MPI launcher. Each rank is a process that runs the
// test's binary with the same test, as with [Processes].
type Mpiexec struct {
	Label   string   // the launcher's name in messages
	Command []string // the launcher and its arguments; -n and the number of ranks are added
	Env     []string // more variables, NAME=value
	Sizes   []int    // the numbers of ranks to test with; nil: those of Test

	// ShortFrom is the number of ranks from which on the matrix is the smaller one; 0
	// means never. It is meant for libraries whose ranks spin while they wait: with
	// more ranks than processors every call takes them long.
	ShortFrom int

	// Leaves has patterns (path.Match) of the files that the library leaves in
	// /dev/shm when a rank is lost, for [Faults]. Faults removes the job's files that
	// match one, and matching files that appeared during the job and that no process
	// uses. It finds out from /proc, so on Linux only.
	Leaves []string

	// LosesStatus says that the launcher may report success for a job that lost a rank.
	LosesStatus bool

	// Skips maps scenarios that cannot be run to the reason. A name that ends in "*"
	// stands for all scenarios that begin with what precedes it.
	Skips map[string]string
}

// Name implements [Launcher].
func (m Mpiexec) Name() string { return m.Label }

// Ranks implements [Sizer].
func (m Mpiexec) Ranks(bool) []int { return m.Sizes }

// Whole implements [Sizer].
func (m Mpiexec) Whole(ranks int) bool {
	return m.ShortFrom > 0 && ranks < m.ShortFrom || m.ShortFrom == 0 && ranks < 7
}

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
	cmd, err := rankCommand(t, job, append(slices.Clip(m.Command), "-n", strconv.Itoa(job.Ranks)), m.Env)
	if err != nil {
		return err
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.String())
	}
	return nil
}
