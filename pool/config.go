package pool

import (
	"os"
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
)

// Policy selects what workers are pinned to.
type Policy string

// The policies. What they mean for a node, [topo.Node.Share] decides.
const (
	FromEnv Policy = ""      // COHORT_PIN, else None
	None    Policy = "none"  // workers run where the process may
	Cores   Policy = "cores" // each worker has a core of its own, or a hardware thread where there are too few cores
	NUMA    Policy = "numa"  // each worker has those cores of the rank's share that are in one NUMA domain
)

// ParsePolicy reads the name of a policy.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case None, Cores, NUMA:
		return p, nil
	}
	return "", faultf(backend.ErrInit, "pinning %q: want none, cores or numa", s)
}

// maxThreads is more than any node has, and far less than makes no sense.
const maxThreads = 4096

// Config configures a pool. The zero value takes its settings from the environment.
type Config struct {
	// Threads is how many workers there are. 0: as many as CPUs has sets, else
	// COHORT_THREADS, else SLURM_CPUS_PER_TASK, else 1.
	Threads int

	// Pin is the policy (COHORT_PIN).
	Pin Policy

	// CPUs lists for each worker the processors on which it runs, by the kernel's
	// numbers; one whose set is empty is not pinned. Where it is nil, Pin decides.
	CPUs [][]int

	// LocalRank and LocalSize distinguish the processes that share this one's
	// affinity mask: each takes its part of it, and no two overlap while there are
	// processors enough. 0 of 0 or of 1 takes all, which is right where a launcher
	// has bound each process to processors of its own; topo.Sharers finds that out.
	// They count where CPUs is set too: for how long workers look before they sleep.
	LocalRank, LocalSize int

	// Env looks an environment variable up; nil is os.LookupEnv.
	Env func(name string) (string, bool)
}

// Resolved returns the configuration with its open settings filled in as [New] fills
// them in. A program that needs the number of threads before it starts them calls it.
// Its errors are those of New.
func (c Config) Resolved() (Config, error) { return c.resolve() }

// resolve checks a configuration and fills in its open settings.
func (c Config) resolve() (Config, error) {
	if c.Env == nil {
		c.Env = os.LookupEnv
	}
	if err := c.resolveThreads(); err != nil {
		return c, err
	}
	if c.Pin == FromEnv {
		c.Pin = None
		if v, _ := c.Env("COHORT_PIN"); v != "" {
			p, err := ParsePolicy(v)
			if err != nil {
				return c, faultf(backend.ErrInit, "COHORT_PIN is %q: want none, cores or numa", v)
			}
			c.Pin = p
		}
	}
	if _, err := ParsePolicy(string(c.Pin)); err != nil {
		return c, err
	}
	if c.LocalSize == 0 && c.LocalRank == 0 {
		c.LocalSize = 1
	}
	if c.LocalRank < 0 || c.LocalRank >= c.LocalSize {
		return c, faultf(backend.ErrInit, "local rank %d of %d", c.LocalRank, c.LocalSize)
	}
	if c.CPUs != nil && len(c.CPUs) != c.Threads {
		return c, faultf(backend.ErrInit, "%d processor sets for %d threads", len(c.CPUs), c.Threads)
	}
	for w, set := range c.CPUs {
		for _, cpu := range set {
			if cpu < 0 || cpu >= maxCPUs {
				return c, faultf(backend.ErrInit, "worker %d: processor %d: want 0 to %d", w, cpu, maxCPUs-1)
			}
		}
	}
	return c, nil
}

func (c *Config) resolveThreads() error {
	switch {
	case c.Threads < 0 || c.Threads > maxThreads:
		return faultf(backend.ErrInit, "%d threads: want 1 to %d", c.Threads, maxThreads)
	case c.Threads > 0:
		return nil
	case len(c.CPUs) > maxThreads:
		return faultf(backend.ErrInit, "%d processor sets: want 1 to %d", len(c.CPUs), maxThreads)
	case len(c.CPUs) > 0:
		c.Threads = len(c.CPUs)
		return nil
	}
	c.Threads = 1
	for _, name := range []string{"COHORT_THREADS", "SLURM_CPUS_PER_TASK"} {
		if v, _ := c.Env(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > maxThreads {
				return faultf(backend.ErrInit, "%s is %q: want a whole number from 1 to %d", name, v, maxThreads)
			}
			c.Threads = n
			break
		}
	}
	return nil
}
