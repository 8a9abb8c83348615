package remote

import (
	"io"
	"os"
	"time"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// AgentCommand is the command of the cohort program that runs the agent. Its argument is the folder into which
// the executable was copied, or "-".
const AgentCommand = "agent"

// Config describes a job on hosts. Hosts, SSH, Program, Signals, Stdout and Stderr are required.
type Config struct {
	Hosts []Host
	Ranks int      // 0 for as many as there are slots, or processors
	SSH   []string // the command and its first arguments
	Srun  bool     // that is Slurm's srun, inside an allocation with these hosts
	Copy  bool     // send executables that a host does not have

	Program string // its path on this machine, or a name without a slash: a command on each host
	Args    []string
	Env     []string // variables for the ranks
	Bind    spawn.Bind
	Tag     bool
	Show    spawn.Show
	Output  string // the folder that gets each rank's output; empty for none

	Interface string // where this process listens for the ranks; empty: where the hosts see it

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
