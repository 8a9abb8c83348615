package pool

import (
	"cmp"
	"os"
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
)

// Pinning selects what workers are pinned to.
type Pinning string

// What workers can be pinned to. [topo.Node.Plan] defines what they mean for a node.
const (
	FromEnv Pinning = ""      // the value of COHORT_PIN, or None
	None    Pinning = "none"  // workers run wherever the process may run
	Cores   Pinning = "cores" // each worker has its own core, or a hardware thread if cores are short
	NUMA    Pinning = "numa"  // each worker has the cores of the rank's share in one NUMA domain
)

// ParsePinning reads the name of a pinning.
func ParsePinning(s string) (Pinning, error) {
	switch p := Pinning(s); p {
	case None, Cores, NUMA:
		return p, nil
	}
	return "", faultf(backend.ErrInit, "pinning (COHORT_PIN) is %q; want none, cores or numa", s)
}

// maxThreads is more than any node has.
const maxThreads = 4096

// Config configures a pool. The zero value takes its settings from the environment.
type Config struct {
	// Threads is the number of workers. 0 means the number of sets in CPUs, or COHORT_THREADS, or
	// SLURM_CPUS_PER_TASK, or 1, whichever is set first.
	Threads int

	// Pin is the policy (COHORT_PIN).
	Pin Pinning

	// CPUs lists the processors of each worker, by the kernel's numbers; a worker with an empty set
	// is not pinned. If CPUs is nil, Pin decides.
	CPUs [][]int

	// LocalRank and LocalSize number the processes that share this process's affinity mask. Each
	// process takes its part of the mask; parts overlap only if processors are short. A LocalSize
	// of 0 or 1 takes the whole mask, which is right if the launcher has bound each process to its
	// own processors; topo.Sharers finds that out. With CPUs set they only determine how long idle
	// workers look for work before they sleep.
	LocalRank, LocalSize int

	// Env looks up an environment variable; nil means os.LookupEnv.
	Env func(name string) (string, bool)
}

// Resolved returns the configuration with its open settings filled in, as [New] does. It tells a
// program the number of threads before they start. Its errors are those of New.
func (c Config) Resolved() (Config, error) {
	if c.Env == nil {
		c.Env = os.LookupEnv
	}
	if err := c.resolveThreads(); err != nil {
		return c, err
	}
	if c.Pin == FromEnv {
		v, _ := c.Env("COHORT_PIN")
		c.Pin = cmp.Or(Pinning(v), None)
	}
	if _, err := ParsePinning(string(c.Pin)); err != nil {
		return c, err
	}
	if c.LocalSize == 0 && c.LocalRank == 0 {
		c.LocalSize = 1
	}
	if c.LocalRank < 0 || c.LocalRank >= c.LocalSize {
		return c, faultf(backend.ErrInit, "local rank %d of %d; want 0 to LocalSize-1", c.LocalRank, c.LocalSize)
	}
	if c.CPUs != nil && len(c.CPUs) != c.Threads {
		return c, faultf(backend.ErrInit, "CPUs has %d sets for %d threads; want one per thread", len(c.CPUs), c.Threads)
	}
	for w, set := range c.CPUs {
		for _, cpu := range set {
			if cpu < 0 || cpu >= maxCPUs {
				return c, faultf(backend.ErrInit, "worker %d: processor %d; want 0 to %d", w, cpu, maxCPUs-1)
			}
		}
	}
	return c, nil
}

func (c *Config) resolveThreads() error {
	switch {
	case c.Threads < 0 || c.Threads > maxThreads:
		return faultf(backend.ErrInit, "%d threads; want 1 to %d", c.Threads, maxThreads)
	case c.Threads > 0:
		return nil
	case len(c.CPUs) > maxThreads:
		return faultf(backend.ErrInit, "%d processor sets; want 1 to %d", len(c.CPUs), maxThreads)
	case len(c.CPUs) > 0:
		c.Threads = len(c.CPUs)
		return nil
	}
	c.Threads = 1
	for _, name := range []string{"COHORT_THREADS", "SLURM_CPUS_PER_TASK"} {
		if v, _ := c.Env(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > maxThreads {
				return faultf(backend.ErrInit, "%s is %q; want an integer from 1 to %d", name, v, maxThreads)
			}
			c.Threads = n
			break
		}
	}
	return nil
}
