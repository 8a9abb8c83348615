package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cohort-hpc/cohort/backend/shm"
	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/topo"
)

type runOptions struct {
	backend string
	named   string // what named the backend, for errors
	bind    spawn.Bind
	timeout time.Duration
	grace   time.Duration
	tag     bool
	goOn    bool
	flight  string
	stats   bool
	output  string
	show    spawn.Show
	hosts   hostOptions
	elastic elasticOptions
}

func newRun() *cobra.Command {
	r, ranks := runOptions{tag: true, grace: spawn.Grace}, 0
	c := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGUMENTS] [: -n N PROGRAM [ARGUMENTS]]...",
		Short: "Start the ranks of a program",
		Long: `
Start the ranks of PROGRAM and wait until all have ended. Flags come before
PROGRAM; what follows it, up to a lone ":", is passed to it.

PROGRAM is an executable, or a folder with a Go main package, which is built
first. A name without a slash is looked up in PATH.

A lone ":" begins another program, whose ranks follow in the same job. Each of
several programs needs -n; other flags stand before the first. If ":" is an
argument, write -- before PROGRAM.

Each line of output starts with the rank that wrote it. Standard input goes to
rank 0. Signals go to all ranks, and a second interrupt ends them.

The exit status is 0, or that of the first rank that fails: 128 + n if signal n
killed it. The other ranks then have the --grace time to end before they are
terminated. If the ranks' last operations explain the failure, a line says how.

With --restarts, a process is started in place of each rank that is lost. It
joins the next world of the others, which call cohort.Rejoin. With --elastic,
the job also goes on with fewer ranks, and 'cohort scale' changes its size.

With --backend mpi, the mpiexec of an MPI library starts the ranks. The library
is COHORT_MPI_LIB, or else the first choice of 'cohort doctor'.

This command does not know the backends that PROGRAM registers itself. PROGRAM
selects one by its Config, or you do: cohort run env COHORT_BACKEND=NAME PROGRAM

With --hosts, ssh starts the ranks, and they communicate over tcp. ssh must not
ask for a password. This command and PROGRAM are copied to the hosts, and
removed at the end.

docs/launcher.md and docs/hosts.md have the details.`,
		Example: `
  cohort run -n 4 ./sddp/cmd/sddp train sddp/cases/brazil4
  cohort run -n 4 --backend mpi ./sddp/cmd/sddp train sddp/cases/brazil4
  cohort run -n 2 --timeout 10m --tag=false ./a.out -v
  cohort run -n 4 --stats ./a.out
  cohort run -n 4 --restarts 10 --elastic 2:8 ./a.out
  cohort run -n 1 ./server -v : -n 4 ./worker
  cohort run -n 8 --hosts a,b:4,node[3-5] ./a.out`,
		RunE: func(c *cobra.Command, _ []string) error {
			programs, err := splitPrograms(c, ranks)
			if err != nil {
				return err
			}
			return cli.Exit(r.run(programs))
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // flags after PROGRAM are its own
	ranksFlag(f, &ranks)
	f.StringVar(&r.backend, "backend", "", "communicate over `NAME`: shm, tcp or mpi (default: COHORT_BACKEND; else shm, or tcp with --hosts, above 256 ranks, or without Linux)")
	cli.Complete(c, "backend", runBackends...)
	bindFlag(c, &r.bind)
	cli.Duration(f, &r.timeout, "timeout", false, "end the job after this time, such as 10m, with status 124")
	cli.Duration(f, &r.grace, "grace", true, "when a rank fails, give the others this time before they are terminated")
	f.BoolVar(&r.goOn, "resilient", false, "when a rank fails, do not end the others")
	r.elastic.flags(f)
	f.BoolVar(&r.tag, "tag", true, "start each line of output with its rank; --tag=false does not")
	cli.Func(f, "show", "", "RANKS", "", "show the standard output of these ranks only, such as 0,3-5, or of none", func(s string) (err error) {
		r.show, err = spawn.ParseShow(s)
		return err
	})
	f.StringVar(&r.output, "output", "", "write each rank's output to rank.N.out and rank.N.err in `FOLDER` too")
	f.StringVar(&r.flight, "flight", "", "keep the files for 'cohort report' in `FOLDER`")
	f.BoolVar(&r.stats, "stats", os.Getenv(flight.EnvStats) != "", "count the operations, and print at the end where the time went")
	r.hosts.flags(c)
	return c
}

// run starts a job and waits for its end.
//
//  1. Check the options, find the programs, and place the ranks.
//  2. Build programs that are folders. From here on, the keeper removes what is left if this process is killed.
//  3. Prepare what the ranks meet by.
//  4. Start the ranks, and wait.
func (r *runOptions) run(programs spawn.Programs) (status int, err error) {
	if err := r.check(programs); err != nil {
		return cli.StatusUsage, err
	}
	if err := spawn.Supported(); err != nil {
		return 1, err
	}
	if r.hosts.asked() {
		return r.runHosts(programs)
	}
	folders, err := find(programs, spawn.Find)
	if err != nil {
		return cli.StatusUsage, err
	}
	node, err := topo.Here()
	if err != nil {
		return 1, err
	}
	config, ranks, err := r.place(node, programs)
	if err != nil {
		return cli.StatusUsage, err
	}

	config.Signals = spawn.Notify()
	if config.Keeper, err = spawn.StartKeeper(); err != nil {
		return 1, err
	}
	defer config.Keeper.Close()
	remove, status, err := build(programs, folders, config.Signals, config.Keeper)
	defer remove()
	if err != nil {
		return status, err
	}

	endFlight, err := recordFlight(r.flight, r.stats, false, config.Keeper)
	if err != nil {
		return cli.StatusUsage, err
	}
	var started *spawn.Job
	var result job.Result
	defer func() { endFlight(started != nil, result.Status, result.Aborted) }()
	end, err := r.prepare(&config, ranks)
	if err != nil {
		return cli.StatusUsage, err
	}
	defer end()
	if r.output != "" { // last, because it removes earlier files
		files, err := spawn.OpenFiles(r.output, ranks)
		if err != nil {
			return cli.StatusUsage, err
		}
		defer func() { status, err = files.Conclude(status, err) }()
		config.Copy = files.Writer
	}

	if started, err = spawn.Start(config); err != nil {
		return cli.StatusUsage, err
	}
	r.elastic.begun(config.Folder)
	result = started.Wait()
	return result.Status, nil
}

// check reports options that are wrong, or do not go together.
func (r *runOptions) check(programs spawn.Programs) error {
	r.named = "--backend " + r.backend
	if name := os.Getenv(spawn.EnvBackend); r.backend == "" && name != "auto" {
		r.backend, r.named = name, spawn.EnvBackend+"="+name
	}
	if err := r.checkHosts(); err != nil {
		return err
	}
	if err := r.checkBackend(); err != nil {
		return err
	}
	if r.hosts.asked() {
		r.backend = "tcp"
	}
	return r.checkLosses(programs)
}

// place returns how to run the ranks on this machine, and how many there are at most.
func (r *runOptions) place(node *topo.Node, programs spawn.Programs) (config spawn.Config, ranks int, err error) {
	if programs.Ranks() == 0 {
		programs[0].Ranks = defaultRanks(node)
		if e := r.elastic; e.max > 0 {
			programs[0].Ranks = min(max(programs[0].Ranks, e.min), e.max)
		}
	}
	config = spawn.Config{
		Programs: programs, Generations: r.elastic.generations(programs.Ranks()),
		Stdin: os.Stdin, Tag: r.tag, Show: r.show, Timeout: r.timeout, Grace: r.grace, Resilient: r.goOn,
	}
	ranks = programs.Ranks()
	if config.Generations != nil {
		ranks = config.Generations.Max
	}
	if err = r.show.Check(ranks); err != nil {
		return config, 0, err
	}
	if config.Backend, err = r.backendFor(ranks); err != nil {
		return config, 0, err
	}
	if config.Places, err = spawn.Place(node, r.bind, ranks); err != nil {
		return config, 0, err
	}
	return config, ranks, nil
}

// prepare adds to config what the ranks of its backend meet by. end removes it.
func (r *runOptions) prepare(config *spawn.Config, ranks int) (end func(), err error) {
	if config.Backend == "mpi" {
		config.Launch, end, err = mpiLaunch(ranks, config.Keeper)
		return end, err
	}
	remove, err := r.folder(config)
	if err != nil || config.Backend != "tcp" {
		return remove, err
	}
	leave := func() {}
	if config.Generations != nil {
		err = loopback(config)
	} else {
		leave, err = tcpCoordinator(config)
	}
	if err != nil {
		remove()
		return nil, err
	}
	return func() { leave(); remove() }, nil
}

// folder gives the job a folder in which ranks leave notes.
func (r *runOptions) folder(c *spawn.Config) (remove func(), err error) {
	c.Folder, err = os.MkdirTemp("", "cohort-run-*") // for this user alone
	if err != nil {
		return nil, noFolder(err)
	}
	c.Keeper.Folder(c.Folder)
	c.Env = append(os.Environ(), "COHORT_RUN_DIR="+c.Folder)
	return func() { os.RemoveAll(c.Folder) }, nil
}

func noFolder(err error) error {
	return fmt.Errorf("no folder for temporary files: %w; set TMPDIR to a folder that this user can write to", err)
}

// defaultRanks is the number of ranks without -n.
func defaultRanks(node *topo.Node) int { return min(node.Usable(), spawn.MaxRanks) }

// bindFlag adds the flag that selects what ranks are bound to.
func bindFlag(c *cobra.Command, p *spawn.Bind) {
	usage := "bind each rank to its share of the machine: core, numa or none (default: core if there are enough processors, else none)"
	cli.Func(c.Flags(), "bind", "", "WHAT", "", usage, func(s string) (err error) {
		*p, err = spawn.ParseBind(s)
		return err
	})
	cli.Complete(c, "bind", "core", "numa", "none")
}

// backendFor returns the backend of ranks on this node. If none was asked for, it is shm where shm runs the ranks, else tcp.
func (r *runOptions) backendFor(ranks int) (string, error) {
	switch many := ranks > shm.MaxRanks; {
	case r.backend == "" && (many || !shmem.Supported):
		return "tcp", nil
	case r.backend == "shm" && many:
		return "", cli.Usagef("%s runs at most %d ranks on a node, not %d; leave it out, or take tcp", r.named, shm.MaxRanks, ranks)
	}
	return cmp.Or(r.backend, "shm"), nil
}

var runBackends = []string{"shm", "tcp", "mpi"}

// checkBackend reports why ranks cannot be started for the backend that was asked for.
func (r *runOptions) checkBackend() error {
	switch {
	case r.backend == "" || slices.Contains(runBackends, r.backend):
		return nil
	case r.backend == "local":
		return cli.Usagef("%s: its ranks are goroutines that cohort.Run starts inside one process; want shm, tcp or mpi", r.named)
	}
	return cli.Usagef("%s: want shm, tcp or mpi, or run 'env COHORT_BACKEND=%s PROGRAM' if PROGRAM registers this backend%s",
		r.named, r.backend, cli.DidYouMean(r.backend, runBackends))
}
