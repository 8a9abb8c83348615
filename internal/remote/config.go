package remote

import (
	"io"
	"os"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// AgentCommand is the command of the cohort program that runs the agent. Its argument is the folder into which
// the executable was copied, or "-".
const AgentCommand = "agent"

// Config describes a job on hosts. Hosts, Programs, SSH, Signals, Stdout and Stderr are required.
type Config struct {
	Hosts []Host
	// Programs have their paths on this machine. A name without a slash is a command of each host. A single program may have 0 ranks,
	// for as many as there are slots, or processors.
	Programs spawn.Programs
	SSH      []string // the command and its first arguments
	Srun     bool     // that is Slurm's srun, inside an allocation with these hosts
	Copy     bool     // send executables that a host does not have

	Env    []string // variables for the ranks
	Bind   spawn.Bind
	Tag    bool
	Show   spawn.Show
	Output string // the folder that gets each rank's output; empty for none

	Interface string // where this process listens for the ranks; empty: where the hosts see it

	// Generations has the limits of a job in which other processes take the places of lost ones; if Max is 0, they are the
	// job's size. There is one program. Nil: none take their places.
	Generations *generation.Config
	Folder      string // with Generations, for the socket of spawn.Scale
	Begun       func() // with Generations, called before the ranks start

	Resilient  bool // the job continues after losses
	Timeout    time.Duration
	Grace      time.Duration // as of spawn.Config
	Flight     string        // the folder that gets the files of the flight recorder; empty for no recorder
	KeepFlight bool          // also if the job does not fail

	Stdin          *os.File
	Stdout, Stderr io.Writer
	Signals        chan os.Signal
	Keeper         *spawn.Keeper
	Version        string // of cohort
}
