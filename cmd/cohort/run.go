package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/topo"
)

var runCommand = command{
	name:    "run",
	args:    "PROGRAM [ARGUMENTS]",
	summary: "Start a program as many ranks, here or on other hosts, and see them through.",
	own:     true,
	setup:   setupRun,
	about: `
PROGRAM is an executable, found in PATH when its name has no slash, or a folder
with a Go main package, which is built first. What follows it is its own.

Lines of output begin with the rank they come from. Standard input goes to
rank 0. Signals reach every rank. The status is that of the first rank to fail,
128 + n when signal n killed it; the others are then ended within 2 s, and a line
says what the ranks were doing as far as that shows what was wrong. A second
interrupt ends ranks that did not heed the first.

With --backend mpi all this holds too, and the ranks are processes of the mpiexec
that belongs to the library they will load: COHORT_MPI_LIB, a path or a name, or
else the first choice of cohort doctor.

With --hosts the ranks are started over ssh, which must not need to ask for a
password, and talk over tcp. Nothing has to be installed there, and no file system
shared: PROGRAM, if it is a path or a folder, and this program are sent where the
same files are not there already, and removed at the end.

Examples:
  cohort run -n 4 ./cmd/sddp train cases/brazil4
  cohort run -n 4 --backend mpi ./cmd/sddp train cases/brazil4
  cohort run -n 2 --timeout 10m --tag=false ./a.out -v
  cohort run -n 8 --hosts a,b:4,node[3-5] ./a.out
`,
}

// runOptions are the options of cohort run.
type runOptions struct {
	ranks   int
	backend string
	bind    spawn.Bind
	timeout time.Duration
	tag     bool
	goOn    bool
	flight  string
	hosts   hostOptions
}

func setupRun(o *options) func([]string) (int, error) {
	r := runOptions{tag: true}
	o.number(&r.ranks, 'n', "", "N", "number of ranks (default: the usable processors)", 1, spawn.MaxRanks)
	o.text(&r.backend, "backend", "NAME", "how the ranks talk: shm, over shared memory (default);\ntcp, over sockets (default with --hosts); or mpi, by an MPI library, whose own\nlauncher starts them")
	bindOption(o, &r.bind)
	o.duration(&r.timeout, "timeout", "end the job after this time, such as 90s or 10m, with status 124")
	o.text(&r.flight, "flight", "FOLDER", "keep the files of the flight recorder there (cohort report)")
	o.flag(&r.goOn, 0, "resilient", "a rank that fails does not end the others; programs that\nset Config.Resilient need no such word")
	r.hosts.setup(o)
	o.flag(&r.tag, 0, "tag", "write the rank before each line of output; --tag=false leaves\nthe output as it is")
	return r.run
}

func (r *runOptions) run(args []string) (int, error) {
	if len(args) == 0 {
		return statusUsage, usagef("no PROGRAM to run")
	}
	if err := r.checkHosts(); err != nil {
		return statusUsage, err
	}
	if r.backend == "" {
		r.backend = "shm"
	}
	if r.hosts.asked() {
		r.backend = "tcp"
	}
	if err := checkRunBackend(r.backend); err != nil {
		return statusUsage, err
	}
	if err := spawn.Supported(); err != nil {
		return 1, err
	}
	if r.hosts.asked() {
		return r.runHosts(args)
	}
	program, err := spawn.Find(args[0])
	if err != nil {
		return statusUsage, err
	}
	node, err := topo.Here()
	if err != nil {
		return 1, err
	}
	if r.ranks == 0 {
		r.ranks = defaultRanks(node)
	}
	places, err := spawn.Place(node, r.bind, r.ranks)
	if err != nil {
		return statusUsage, err
	}

	signals := spawn.Notify()
	keeper, err := spawn.StartKeeper()
	if err != nil {
		return 1, err
	}
	defer keeper.Close()
	if program.Folder {
		path, remove, status, err := buildFolder(program.Path, signals, keeper)
		if err != nil {
			return status, err
		}
		defer remove()
		program.Path = path
	}
	endFlight, err := recordFlight(r.flight, keeper)
	if err != nil {
		return statusUsage, err
	}
	status := 0
	defer func() { endFlight(status) }()
	config := spawn.Config{
		Path: program.Path, Args: args[1:], Backend: r.backend, Ranks: r.ranks, Places: places,
		Stdin: os.Stdin, Tag: r.tag, Timeout: r.timeout, Signals: signals, Keeper: keeper,
	}
	if r.backend != "mpi" {
		end, err := r.askToGoOn(&config, keeper)
		if err != nil {
			return 1, err
		}
		defer end()
	}
	if r.backend == "mpi" {
		launch, remove, err := mpiLaunch(r.ranks, r.goOn, keeper)
		if err != nil {
			return statusUsage, err
		}
		defer remove()
		config.Launch = launch
		config.Resilient = func() bool { return r.goOn }
	}
	if r.backend == "tcp" {
		end, err := tcpMeeting(&config, keeper)
		if err != nil {
			return statusUsage, err
		}
		defer end()
	}
	job, err := spawn.Start(config)
	if err != nil {
		return statusUsage, err
	}
	status = job.Wait().Status
	return status, nil
}

// defaultRanks is how many ranks are started where nobody says.
func defaultRanks(node *topo.Node) int { return min(node.Usable(), spawn.MaxRanks) }

// bindOption adds the option that says what ranks are bound to.
func bindOption(o *options, p *spawn.Bind) {
	o.add(option{0, "bind", "WHAT", "bind each rank to its share: core, numa or none (default:\ncore if there are as many processors as ranks, else none)", func(s string) (err error) {
		*p, err = spawn.ParseBind(s)
		return err
	}})
}

// checkRunBackend reports why ranks cannot be started for a backend.
func checkRunBackend(name string) error {
	switch name {
	case "shm", "tcp", "mpi":
		return nil
	case "local":
		return usagef("--backend local: its ranks are goroutines of one process, which cohort.Run starts inside the program; there are shm, tcp and mpi")
	}
	return usagef("--backend %s: there is no such backend%s; there are shm, tcp and mpi", name, didYouMean(name, []string{"shm", "tcp", "mpi"}))
}

// errStopped is why a build ended that a signal stopped.
var errStopped = errors.New("stopped while building")

// buildFolder builds a Go program. A signal that would end the launcher ends the build.
func buildFolder(folder string, signals <-chan os.Signal, k *spawn.Keeper) (path string, remove func(), status int, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	built := make(chan struct{})
	status = statusUsage
	stopped := make(chan syscall.Signal, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for {
			select {
			case <-built:
				return
			case s := <-signals:
				switch n, _ := s.(syscall.Signal); n {
				case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
					stopped <- n
					cancel(fmt.Errorf("%w: %v", errStopped, n))
					return
				}
				suspend(s)
			}
		}
	}()
	path, remove, err = spawn.Build(ctx, folder, k)
	close(built)
	<-watching
	select {
	case n := <-stopped:
		if err == nil { // it came when the build was through
			remove()
			err = fmt.Errorf("%w: %v", errStopped, n)
		}
		return "", nil, 128 + int(n), err
	default:
	}
	return path, remove, status, err
}
