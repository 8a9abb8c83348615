package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Launcher starts the ranks of a job.
type Launcher interface {
	// Name is what the tests are called after.
	Name() string
	// Launch starts job.Ranks ranks that each call job.Run with their world, and
	// returns when all of them have ended and nothing of them is left. The error
	// says which ranks failed and how: it joins ([errors.Join]) one for each, whose
	// text begins with "rank 3: ", and what else there is to say.
	Launch(t testing.TB, job *Job) error
}

// Skipper is implemented by launchers of backends that cannot do everything.
type Skipper interface {
	// Skip returns why a scenario cannot be run with so many ranks, and "" if
	// it can: which library, which version, what it does wrong.
	Skip(scenario string, ranks int) string
}

// Smaller is implemented by launchers for which the smaller matrix is enough at sizes below 7: where
// most of what the matrix reaches is tested on another backend, or takes too long.
type Smaller interface {
	Smaller(ranks int) bool
}

// More is implemented by launchers that are tested with more numbers of ranks than others are, but with -short and
// under the race detector.
type More interface {
	// More returns the numbers that come on top.
	More() []int
}

// Goroutines launches ranks as goroutines of the test's process.
type Goroutines struct{}

// Name implements [Launcher].
func (Goroutines) Name() string { return "goroutines" }

// Launch implements [Launcher].
func (Goroutines) Launch(t testing.TB, job *Job) error {
	before := snapshot()
	err := cohort.Run(context.Background(), job.Ranks, job.Run)
	if left := before.left(); left != "" {
		err = errors.Join(fmt.Errorf("after the job there are left:\n%s", left), err)
	}
	return err
}

// snapshot is what a process holds.
type resources struct {
	goroutines int
	files      int
}

func snapshot() resources {
	return resources{runtime.NumGoroutine(), openFiles()}
}

// left says what there is more of than before, and "" if nothing. Goroutines
// that have been told to end are given the time to.
func (before resources) left() string {
	s := ""
	if n := settle(before.goroutines); n > before.goroutines {
		buf := make([]byte, 1<<20)
		s += fmt.Sprintf("%d goroutines, %d before:\n%s\n", n, before.goroutines, buf[:runtime.Stack(buf, true)])
	}
	if n := settleFiles(before.files); n > before.files {
		s += fmt.Sprintf("%d open files, %d before\n", n, before.files)
	}
	return s
}
