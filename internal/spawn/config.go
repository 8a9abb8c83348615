package spawn

import (
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/topo"
)

// The variables by which a rank learns of its job.
const (
	EnvBackend = "COHORT_BACKEND"
	EnvRank    = "COHORT_RANK"
	EnvSize    = "COHORT_SIZE"
	EnvJob     = "COHORT_JOB"
)

const (
	// MaxRanks is the most ranks of one job on one node.
	MaxRanks = 4096
	// Grace is the usual [Config.Grace].
	Grace = time.Second
	// KillAfter is how long ranks have between SIGTERM and SIGKILL.
	KillAfter = time.Second
	// StatusTimeout is the status of a job that ran out of time, as of timeout(1).
	StatusTimeout = 124
)

// Config says what to start. Path and Ranks are required.
type Config struct {
	Path    string   // the executable, found already
	Args    []string // its arguments, from argv[1] on
	Env     []string // environment; nil for the launcher's
	Backend string   // for COHORT_BACKEND; empty for shm
	Job     string   // for COHORT_JOB; empty for a new name
	Ranks   int
	Places  []topo.CPUSet // processors of each rank; nil for those of the launcher

	Stdin          *os.File  // for rank 0; nil for none. A terminal is read by the launcher, others are handed over.
	Stdout, Stderr io.Writer // nil for the launcher's
	Tag            bool      // lines get their rank in front

	Launch *Launch // who starts the ranks; nil for this process itself
	Part   *Part   // these ranks are some of a larger job's; nil: they are the job. Not with Launch

	// Resilient is asked when a rank has failed: whether the job goes on without it. Nil: never. It has no
	// effect with a Launch that does not go on, for that launcher ends the job itself.
	Resilient func() bool

	// Grace is how long the others may run on when a rank has failed, to notice it and to end by themselves.
	// After it they get SIGTERM, and SIGKILL after KillAfter. 0: SIGTERM at once.
	Grace time.Duration

	// Aborted is asked when a rank has failed: whether a rank has aborted the job, and with what status. Nil:
	// none does. See [AbortIn].
	Aborted func() (rank, status int, ok bool)

	// Descriptors is how many descriptors the caller opens while the job runs.
	Descriptors int

	Timeout time.Duration  // 0: none
	Signals chan os.Signal // what comes here is passed on to the ranks; see [Notify]
	Keeper  *Keeper        // may be nil
}

// Result is how a job ended.
type Result struct {
	Status int   // 0, or the status of the first rank that failed: its own, or 128 + its signal
	First  int   // that rank, -1 if none failed
	Err    error // a failure that no rank is to blame for: time ran out, output could not be written
}

// Launch is another program that starts the ranks of a job: an MPI launcher. It
// starts Rank, which calls [Become] and so turns into the job's program. The
// process that the launcher has started is then the rank, with the output, input
// and processors that a rank of this package has.
type Launch struct {
	Name    string   // for messages: "mpiexec.mpich"
	Command string   // its path
	Args    []string // its options
	Rank    []string // what it is to start, path first; one more argument comes last, for Become
	Env     []string // variables of the launcher and the ranks, over those of the job
	GoesOn  bool     // it lets the other ranks run when one fails
	// Descriptors is how many descriptors it opens for all the ranks, of which it need not say that it
	// lacks them: it may hang.
	Descriptors int
	// Noise reports whether a line of the launcher's own output is one that it
	// writes when a rank fails, and that says no more than this package does.
	Noise func(line string) bool
	// Blame reads lines of the launcher for the rank that it says failed first, -1
	// if it does not say, and the signal that killed one, 0 for none. It serves where
	// the system does not tell how a rank ended.
	Blame func(lines []string) (rank, signal int)
	// Broken reports whether the launcher's lines say that it has failed itself, in
	// which case its status tells nothing of the ranks.
	Broken func(lines []string) bool
}

// Part says that the ranks of a [Job] are those of one host of a larger job, whose launcher judges how
// they end: it is told of each, and nothing follows from it here.
type Part struct {
	First int // the number of the first rank
	Size  int // how many ranks the larger job has

	// Ended is called for every rank that has ended, in the order in which they did. It must not wait.
	Ended func(End)
	// Log is called with what this package would write about the job.
	Log func(text string)
}

// End is how a rank ended.
type End struct {
	Rank    int             // its number in the larger job
	Status  int             // its own, or 128 + the signal that killed it
	How     string          // "exited with status 3"
	After   string          // how long the job had run: "1.2 s"
	Drained <-chan struct{} // closed when its output has been passed on
}

// Supported returns nil where this package can start ranks, which is on Unix, and elsewhere an error that
// matches [errors.ErrUnsupported] and tells what to do instead.
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
