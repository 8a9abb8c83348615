package spawn

import (
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/topo"
)

// The environment variables that describe its job to a rank.
const (
	EnvBackend = "COHORT_BACKEND"
	EnvRank    = "COHORT_RANK"
	EnvSize    = "COHORT_SIZE"
	EnvJob     = "COHORT_JOB"

	envJoined = "COHORT_JOINED"
	envRunDir = "COHORT_RUN_DIR"
)

const (
	// MaxRanks is the maximum number of ranks of a job on one node.
	MaxRanks = 4096
	// Grace is the default [Config.Grace].
	Grace = time.Second
	// Socket is the name of the socket in [Config.Folder] through which a job with generations is reached.
	Socket = "generations"
	// KillAfter is the time between SIGTERM and SIGKILL.
	KillAfter = time.Second
)

// Config describes a job to start. Programs is required.
type Config struct {
	Programs Programs
	Env      []string      // environment; nil for the launcher's
	Backend  string        // for COHORT_BACKEND; empty for shm
	Job      string        // for COHORT_JOB; empty for a new name
	Places   []topo.CPUSet // processors of each rank; nil for those of the launcher

	Stdin          *os.File  // for rank 0; nil for none. The launcher reads a terminal itself, and passes other files on.
	Stdout, Stderr io.Writer // nil for the launcher's
	Tag            bool      // start each line with its rank

	// Copy returns what also gets the bytes of a rank's standard output (stream 0) or error (1); nil for nothing. The
	// first write that fails ends the job.
	Copy func(rank, stream int) io.Writer
	Show Show // whose standard output is written to Stdout

	Launch *Launch // the program that starts the ranks; nil for this process
	Part   *Part   // set if the ranks are part of a larger job; not with Launch

	// Resilient means that the job continues when a rank has failed. If it is not set, a rank may request that in Folder. With
	// Launch neither is so, because that launcher ends the job itself.
	Resilient bool

	// Generations has the limits of a job that goes on with other processes in place of those that it loses: Min, Max
	// and Restarts. It needs Folder. Nil: the job has one world, or is a Part. With it there is one program, and no Launch.
	Generations *generation.Config

	// Grace is how long the other ranks may run on when a rank has failed, to notice it and to end by
	// themselves. Then they get SIGTERM, and SIGKILL after KillAfter. 0 means SIGTERM at once.
	Grace time.Duration

	// Folder is where ranks leave notes (COHORT_RUN_DIR): that one has aborted the job, that one fails because of
	// another, that one has joined and not left, and that the job continues after losses. The launcher notes there that it asks
	// the ranks to end. Empty means that there are none.
	Folder string

	Timeout time.Duration  // 0: none
	Signals chan os.Signal // these signals are passed on to the ranks; see [Notify]
	Keeper  *Keeper        // may be nil
}

// Launch is another program that starts the ranks of a job: an MPI launcher. It
// starts Rank, which calls [Become] to execute the job's program. So the process that
// the launcher started is the rank. It has the output, input and processors that this
// package gives to its ranks.
type Launch struct {
	Name    string   // for messages: "mpiexec.mpich"
	Command string   // its path
	Args    []string // its options
	Rank    []string // the command it starts, path first; the argument for Become is appended
	Env     []string // variables of the launcher and the ranks; they override those of the job
	// Descriptors is the number of descriptors that it opens for all the ranks, which is more than this process does. If it has
	// fewer, it may hang without a message.
	Descriptors int
}

// Part describes the ranks of a [Job] as those of one host of a larger job. The larger job's launcher
// decides what follows from the end of a rank; this package only reports it.
type Part struct {
	First int // the number of the first rank
	Size  int // number of ranks of the larger job

	// Relay passes a request of a process on to the larger job's launcher, which starts processes in place of those that are
	// lost ([Job.Launch]). It must not block. Nil: the job has one world. With it, Config has one program and Folder, there may
	// be no ranks to begin with, and the job ends after [Job.Release].
	Relay func(id int, r generation.Request)

	// Ended is called for every rank that ends, in that order. It must not block.
	Ended func(job.Exit)
	// Stopped is called when for some time only ranks that NoteStopped has found have been left, or no longer. It must not block.
	Stopped func(only bool)
	// Drains is called when no process is left, and the last output is still to be written. It must not block.
	Drains func()
	// Log is called with each message about the job that this package would otherwise print.
	Log func(text string)
}

// Supported returns nil on Unix, where this package can start ranks. Elsewhere it returns an error that
// matches [errors.ErrUnsupported] and names the alternative.
func Supported() error {
	if onUnix {
		return nil
	}
	return &unsupported{runtime.GOOS}
}

type unsupported struct{ system string }

func (u *unsupported) Error() string {
	return "starting ranks as processes is not supported on " + u.system +
		", which lacks the process groups and signals of Unix; ranks of the local backend run in one process: use cohort.Run"
}

func (u *unsupported) Unwrap() error { return errors.ErrUnsupported }
