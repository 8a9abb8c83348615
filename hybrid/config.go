package hybrid

import (
	"fmt"
	"io"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/pool"
)

// Config holds the settings of a start. The zero Config, and nil, take everything from the
// environment and detect the rest.
type Config struct {
	// Job is the configuration for cohort.Init, and may be nil. Join ignores it.
	Job *cohort.Config

	// Threads is the number of workers on this rank. Zero means COHORT_THREADS, or else
	// SLURM_CPUS_PER_TASK, or else 1.
	Threads int

	// Pin selects what the workers are pinned to (COHORT_PIN): pool.None, pool.Cores or
	// pool.NUMA.
	Pin pool.Pinning

	// Workspace, if not nil, makes a value for each worker, such as a solver. It is called on
	// the worker's thread, so that the memory it first writes is near that thread.
	// Env.Workspaces holds the values. Env.Close closes those that are io.Closers.
	Workspace func(worker int) (any, error)

	// KeepEnvironment skips step 5: the variables of solver libraries are not changed. This
	// suits a library that starts workers inside another program.
	KeepEnvironment bool

	// Summary, if not nil, receives one line on rank 0 at the end: ranks and nodes, threads,
	// library, job, and what could be better.
	Summary io.Writer
}

// StepError is the error of a step on a rank.
type StepError struct {
	Step string
	Rank int // the rank on which the step failed; cohort.Undefined if it cannot be determined
	// Peer is true if Rank is another rank. That rank has the same error, so a program may
	// leave it to that rank to report it.
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

// The steps, as named in StepError.Step.
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

// steps lists the steps; ranks exchange an index.
var steps = []string{StepBackend, StepTopology, StepNode, StepPool, StepSolvers, StepNUMA, StepWorkspaces, StepSummary}
