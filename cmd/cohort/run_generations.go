package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// elasticOptions are the options of cohort run for jobs that go on after losses, with other sizes or other processes.
type elasticOptions struct {
	restarts int
	min, max int // 0: the size that the job begins with
}

func (e *elasticOptions) flags(f *pflag.FlagSet) {
	cli.Number(f, &e.restarts, "restarts", "", 0, math.MaxInt32, "start up to `N` processes in place of ranks that are lost")
	cli.Func(f, "elastic", "", "MIN:MAX", "", "let the job have from MIN to MAX ranks, after losses or by 'cohort scale'", func(s string) error {
		least, most, _ := strings.Cut(s, ":")
		var errs [2]error
		e.min, errs[0] = strconv.Atoi(least)
		e.max, errs[1] = strconv.Atoi(most)
		if errs[0] != nil || errs[1] != nil || e.min < 1 || e.max < e.min || e.max > spawn.MaxRanks {
			return fmt.Errorf("want two numbers of ranks, such as 2:8, from 1 to %d", spawn.MaxRanks)
		}
		return nil
	})
}

func (e *elasticOptions) asked() bool { return e.restarts > 0 || e.max > 0 }

// checkLosses reports options with which the job cannot go on after losses, as asked. docs/launcher.md has the table.
func (r *runOptions) checkLosses(programs spawn.Programs) error {
	e, flag := r.elastic, ""
	switch {
	case e.max > 0:
		flag = "--elastic"
	case e.restarts > 0:
		flag = "--restarts"
	case r.goOn:
		flag = "--resilient"
	}
	refuse := func(format string, args ...any) error { return cli.Usagef(flag+": "+format, args...) }
	switch n := programs.Ranks(); {
	case flag != "" && r.backend == "mpi":
		return refuse("%s does not go on after a loss; use --backend shm or tcp", r.named)
	case !e.asked():
		return nil
	case r.goOn:
		return refuse("without --resilient: ranks that are left go on by Rejoin")
	case r.stats:
		return refuse("--stats and COHORT_STATS count the operations of one world; leave them out")
	case len(programs) > 1:
		return refuse("give one PROGRAM, which all ranks run")
	case e.max > 0 && n > 0 && (n < e.min || n > e.max):
		return refuse("-n %d is not within %d:%d", n, e.min, e.max)
	}
	return nil
}

// generations returns what spawn needs to know of a job of so many ranks, nil if it has one world.
func (e *elasticOptions) generations(ranks int) *generation.Config {
	if !e.asked() {
		return nil
	}
	g := &generation.Config{Min: ranks, Max: ranks, Restarts: e.restarts}
	if e.max > 0 {
		g.Min, g.Max = e.min, e.max
	}
	return g
}

// begun says how to give a job another size, which has its socket in a folder.
func (e *elasticOptions) begun(folder string) {
	if e.max > 0 {
		fmt.Fprintf(os.Stderr, "cohort: 'cohort scale %s N' gives this job another number of ranks, from %d to %d\n",
			strings.TrimPrefix(filepath.Clean(folder), jobFolder()), e.min, e.max)
	}
}

// loopback has the ranks of a job with generations use this machine's loopback interface, unless the user has chosen others.
// Their rank 0 is the coordinator.
func loopback(config *spawn.Config) error {
	config.Env = slices.DeleteFunc(config.Env, func(v string) bool { return strings.HasPrefix(v, "COHORT_TCP_COORDINATOR=") })
	if os.Getenv("COHORT_TCP_IFACE") != "" {
		return nil
	}
	addrs, err := meet.Interfaces("")
	if err != nil {
		return fmt.Errorf("--backend tcp: the loopback interface: %w", err)
	}
	config.Env = append(config.Env, "COHORT_TCP_IFACE="+addrs[0].String())
	return nil
}
