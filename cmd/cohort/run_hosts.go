package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/remote"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// hostOptions are the options of cohort run for ranks on several hosts.
type hostOptions struct {
	list, file string
	ssh        string
	choice     string // of interfaces
	noCopy     bool
	env        []string
}

func (h *hostOptions) setup(o *options) {
	o.text(&h.list, "hosts", "LIST", "start the ranks there, over ssh: a,b:4,node[3-5]; a number\nis the most ranks of a host (default: spread evenly)")
	o.text(&h.file, "hostfile", "FILE", "the same from a file: a line \"NAME slots=4\" or \"NAME:4\"\na host")
	o.text(&h.ssh, "ssh", "COMMAND", "the command instead of ssh, such as \"ssh -p 2222 -i key\"")
	o.text(&h.choice, "interface", "WHAT", "where the ranks on hosts meet and listen: names of\ninterfaces, networks such as 10.1.0.0/16, addresses")
	o.flag(&h.noCopy, 0, "no-copy", "send hosts no executable: cohort and PROGRAM are there")
	o.add(option{0, "env", "NAME[=VALUE]", "a variable for the ranks on hosts, which get COHORT_\nvariables only; may stand several times", func(s string) error {
		name, _, ok := strings.Cut(s, "=")
		if name == "" {
			return fmt.Errorf("want a name, or a name and a value")
		}
		if !ok {
			value, set := os.LookupEnv(name)
			if !set {
				return fmt.Errorf("it is not set here")
			}
			s += "=" + value
		}
		h.env = append(h.env, s)
		return nil
	}})
}

// asked reports whether the ranks are to be on other hosts.
func (h *hostOptions) asked() bool { return h.list != "" || h.file != "" }

// check refuses options that are for other hosts, or for this one alone.
func (r *runOptions) checkHosts() error {
	h := &r.hosts
	switch {
	case !h.asked() && (h.ssh != "" || h.choice != "" || h.noCopy || len(h.env) > 0):
		return usagef("--ssh, --interface, --no-copy and --env are for ranks on other hosts: --hosts or --hostfile names them")
	case !h.asked():
		return nil
	case h.list != "" && h.file != "":
		return usagef("--hosts and --hostfile: give one of them")
	case r.backend == "shm":
		return usagef("--backend shm: its ranks are on one machine; ranks on several hosts talk over tcp")
	case r.backend == "mpi":
		return usagef("--backend mpi: start the program with the MPI library's own mpiexec, which knows hosts, or with srun")
	}
	return nil
}

// parse returns the hosts.
func (h *hostOptions) parse() ([]remote.Host, error) {
	if h.file == "" {
		hosts, err := remote.ParseHosts(h.list)
		if err != nil {
			return nil, usagef("--hosts: %v", err)
		}
		return hosts, nil
	}
	text, err := os.ReadFile(h.file)
	if err != nil {
		return nil, fmt.Errorf("--hostfile: %w", err)
	}
	hosts, err := remote.ParseHostfile(string(text))
	if err != nil {
		return nil, usagef("--hostfile %s: %v", h.file, err)
	}
	return hosts, nil
}

// runHosts starts the ranks on other hosts.
func (r *runOptions) runHosts(args []string) (int, error) {
	hosts, err := r.hosts.parse()
	if err != nil {
		return statusUsage, err
	}
	ssh := []string{"ssh"}
	if r.hosts.ssh != "" {
		if ssh, err = remote.SplitCommand(r.hosts.ssh); err != nil {
			return statusUsage, usagef("--ssh: %v", err)
		}
	}
	signals := spawn.Notify()
	keeper, err := spawn.StartKeeper()
	if err != nil {
		return 1, err
	}
	defer keeper.Close()
	path, remove, status, err := r.hosts.program(args[0], signals, keeper)
	if err != nil {
		return status, err
	}
	defer remove()
	env := passedOn(os.Environ())
	endFlight, err := recordFlight(r.flight, keeper)
	if err != nil {
		return statusUsage, err
	}
	defer func() { endFlight(status) }()
	status, err = remote.Run(remote.Config{
		Hosts: hosts, Ranks: r.ranks, SSH: ssh, Copy: !r.hosts.noCopy, Program: path, Args: args[1:], Env: append(env, r.hosts.env...),
		Backend: "tcp", Bind: r.bind, Tag: r.tag, Interface: r.hosts.choice, Resilient: r.goOn, Timeout: r.timeout,
		Flight: os.Getenv(flight.EnvDir), KeepFlight: os.Getenv(flight.EnvKept) != "",
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals, Keeper: keeper, Version: version(),
	})
	return status, err
}

// program returns the path of what ranks on other hosts execute. A name without a slash is a command that each
// host has itself, unless there is a folder of that name here, to be built.
func (h *hostOptions) program(name string, signals <-chan os.Signal, keeper *spawn.Keeper) (path string, remove func(), status int, err error) {
	remove = func() {}
	command := name != "." && name != ".." && !strings.Contains(name, "/")
	program, err := spawn.Find(name)
	switch {
	case err == nil && program.Folder:
		return buildFolder(program.Path, signals, keeper)
	case command && name != "":
		return name, remove, 0, nil
	case h.noCopy && name != "": // what is there counts
	case err != nil:
		return "", nil, statusUsage, err
	}
	path, err = filepath.Abs(name)
	return path, remove, statusUsage, err
}

// passedOn returns the variables that ranks on other hosts get from here: cohort's own, but for those that
// each host has to have its own of.
func passedOn(env []string) []string {
	local := []string{
		spawn.EnvBackend, spawn.EnvRank, spawn.EnvSize, spawn.EnvJob, flight.EnvDir, flight.EnvKept,
		"COHORT_SPAWN_KEEPER", "COHORT_DOCTOR_PROBE", "COHORT_RUN_DIR", "COHORT_SECRET_FILE", "COHORT_TCP_COORDINATOR",
	}
	var set []string
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "COHORT_") && !slices.Contains(local, name) {
			set = append(set, v)
		}
	}
	return set
}
