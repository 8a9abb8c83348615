package hybrid

import (
	"fmt"
	"io"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/pool"
)

// Config says how to start. The zero value, and nil, take everything from the
// environment and find out the rest.
type Config struct {
	// Job says how to join the job; nil is cohort.Init's own way. Join ignores it.
	Job *cohort.Config

	// Threads is how many workers the rank has. 0: COHORT_THREADS, else
	// SLURM_CPUS_PER_TASK, else 1.
	Threads int

	// Pin says to what they are pinned (COHORT_PIN): pool.None, pool.Cores or
	// pool.NUMA.
	Pin pool.Policy

	// Workspace, if not nil, makes what each worker works with, such as a solver,
	// on the worker's thread, so that memory that it is the first to write is near
	// that. Env.Workspaces has the values; Env.Close closes those that are io.Closers.
	Workspace func(worker int) (any, error)

	// KeepEnvironment skips step 5: the variables of solver libraries stay as they are,
	// which is right for a library that starts workers inside somebody's program.
	KeepEnvironment bool

	// Summary, if not nil, gets one line on rank 0 when all is done: ranks and nodes,
	// threads, library, job, and what could be better.
	Summary io.Writer
}

// StepError says which step of a start failed, on which rank, and why.
type StepError struct {
	Step string
	Rank int // the rank it failed on, cohort.Undefined if that cannot be said
	// Peer says that Rank is another rank, which has the error itself: one of them is
	// enough to tell.
	Peer bool
	Err  error
}

// Error implements error.
func (e *StepError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("hybrid: %s: %v", e.Step, e.Err)
	}
	return fmt.Sprintf("hybrid: %s: rank %d: %v", e.Step, e.Rank, e.Err)
}

// Unwrap returns Err.
func (e *StepError) Unwrap() error { return e.Err }

// The steps, as StepError has them.
const (
	StepBackend    = "backend"
	StepTopology   = "topology"
	StepNode       = "node communicator"
	StepPool       = "thread pool"
	StepSolvers    = "solver threads"
	StepNUMA       = "NUMA policy"
	StepWorkspaces = "workspaces"
	StepSummary    = "summary"
)

// steps has them by the numbers that ranks tell each other.
var steps = []string{StepBackend, StepTopology, StepNode, StepPool, StepSolvers, StepNUMA, StepWorkspaces, StepSummary}
