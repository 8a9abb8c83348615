package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/remote"
	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/topo"
)

// hostOptions are the options of cohort run for ranks on several hosts.
type hostOptions struct {
	list, file string
	ssh        string
	starter    string
	choice     string // of interfaces
	noCopy     bool
	env        []string
}

func (h *hostOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&h.list, "hosts", "", "start the ranks on the hosts in `LIST`, such as a,b:4,node[3-5], where :4 limits b to 4 ranks")
	f.StringVar(&h.file, "hostfile", "", "read the hosts from `FILE`, one per line: NAME, NAME:4 or \"NAME slots=4\"")
	f.StringVar(&h.ssh, "ssh", "", "run `COMMAND` instead of ssh, such as \"ssh -p 2222 -i key\"")
	h.starter = "ssh"
	cli.Choice(c, &h.starter, "starter", "start by ssh, or by srun on the hosts of a Slurm allocation", "ssh", "srun")
	f.StringVar(&h.choice, "interface", "", "communicate over `WHAT`: interfaces, networks such as 10.1.0.0/16, or addresses")
	f.BoolVar(&h.noCopy, "no-copy", false, "use the cohort and PROGRAM that are installed on the hosts")
	cli.Func(f, "env", "", "NAME[=VALUE]", "", "pass a variable to the ranks; COHORT_ variables are always passed (repeatable)", func(s string) error {
		name, _, ok := strings.Cut(s, "=")
		if name == "" {
			return fmt.Errorf("want NAME or NAME=VALUE")
		}
		if !ok {
			value, set := os.LookupEnv(name)
			if !set {
				return fmt.Errorf("the variable is not set here; give NAME=VALUE")
			}
			s += "=" + value
		}
		h.env = append(h.env, s)
		return nil
	})
	cli.Section(c, "Flags for ranks on other hosts", "hosts", "hostfile", "ssh", "starter", "interface", "no-copy", "env")
}

// asked reports whether the ranks are to be on other hosts.
func (h *hostOptions) asked() bool { return h.list != "" || h.file != "" || h.srun() }

func (h *hostOptions) srun() bool { return h.starter == "srun" }

// checkHosts reports flags that do not go together.
func (r *runOptions) checkHosts() error {
	h := &r.hosts
	switch {
	case !h.asked() && (h.ssh != "" || h.choice != "" || h.noCopy || len(h.env) > 0):
		return cli.Usagef("--ssh, --interface, --no-copy and --env need --hosts or --hostfile")
	case !h.asked():
		return nil
	case h.srun() && os.Getenv("SLURM_JOB_ID") == "":
		return cli.Usagef("--starter srun works in a Slurm allocation (SLURM_JOB_ID is not set); use it in salloc or sbatch")
	case h.srun() && h.ssh != "":
		return cli.Usagef("--starter srun does not use ssh; leave out --ssh")
	case h.list != "" && h.file != "":
		return cli.Usagef("--hosts and --hostfile exclude each other; give one of them")
	case r.backend == "shm":
		return cli.Usagef("%s works on one machine only; ranks on several hosts use tcp, the default with --hosts", r.named)
	case r.backend == "mpi":
		return cli.Usagef("%s with --hosts is not supported; start the program with mpiexec or srun, which start ranks on hosts themselves", r.named)
	}
	return nil
}

func (h *hostOptions) parse() ([]remote.Host, error) {
	if h.file == "" && h.list == "" {
		return allocated()
	}
	if h.file == "" {
		hosts, err := remote.ParseHosts(h.list)
		if err != nil {
			return nil, cli.Usagef("--hosts: %v", err)
		}
		return hosts, nil
	}
	text, err := os.ReadFile(h.file)
	if err != nil {
		return nil, fmt.Errorf("--hostfile: %w", err)
	}
	hosts, err := remote.ParseHostfile(string(text))
	if err != nil {
		return nil, cli.Usagef("--hostfile %s: %v", h.file, err)
	}
	return hosts, nil
}

// allocated returns the hosts of the Slurm allocation, with as many slots as tasks.
func allocated() ([]remote.Host, error) {
	job := topo.ReadJob(os.LookupEnv, nil)
	if len(job.Problems) > 0 {
		return nil, fmt.Errorf("--starter srun: %w", job.Problems[0])
	}
	var hosts []remote.Host
	for i, name := range job.Hosts {
		h := remote.Host{Name: name}
		if i < len(job.TasksPerNode) {
			h.Slots = job.TasksPerNode[i]
		}
		hosts = append(hosts, h)
	}
	if hosts == nil {
		return nil, cli.Usagef("--starter srun: the allocation does not list its hosts (SLURM_JOB_NODELIST); give --hosts")
	}
	return hosts, nil
}

func (r *runOptions) runHosts(programs spawn.Programs) (int, error) {
	hosts, err := r.hosts.parse()
	if err != nil {
		return cli.StatusUsage, err
	}
	ssh := strings.Fields(cmp.Or(r.hosts.ssh, r.hosts.starter))
	if len(ssh) == 0 || strings.ContainsAny(r.hosts.ssh, `'"\`) {
		return cli.StatusUsage, cli.Usagef("--ssh %q: want words without quotes and backslashes; options that need them belong in ~/.ssh/config, or in a script", r.hosts.ssh)
	}
	folders, err := find(programs, r.hosts.find)
	if err != nil {
		return cli.StatusUsage, err
	}
	signals := spawn.Notify()
	keeper, err := spawn.StartKeeper()
	if err != nil {
		return 1, err
	}
	defer keeper.Close()
	remove, status, err := build(programs, folders, signals, keeper)
	defer remove()
	if err != nil {
		return status, err
	}
	generations, folder := r.elastic.generations(programs.Ranks()), ""
	if generations != nil {
		if folder, err = os.MkdirTemp("", "cohort-run-*"); err != nil {
			return cli.StatusUsage, noFolder(err)
		}
		keeper.Folder(folder)
		defer os.RemoveAll(folder)
	}
	endFlight, err := recordFlight(r.flight, r.stats, true, keeper)
	if err != nil {
		return cli.StatusUsage, err
	}
	env := append(passedOn(os.Environ()), r.hosts.env...) // after recordFlight, which sets or removes COHORT_STATS for the ranks
	// Of the errors, only that of closing the files of --output comes after the start.
	defer func() { endFlight(err == nil || status == 1, status, false) }()
	status, err = remote.Run(remote.Config{
		Hosts: hosts, Programs: programs, SSH: ssh, Srun: r.hosts.srun(), Copy: !r.hosts.noCopy, Env: env,
		Bind: r.bind, Tag: r.tag, Show: r.show, Output: r.output, Interface: r.hosts.choice, Resilient: r.goOn,
		Generations: generations, Folder: folder, Begun: func() { r.elastic.begun(folder) }, Timeout: r.timeout, Grace: r.grace,
		Flight: os.Getenv(flight.EnvDir), KeepFlight: r.stats || os.Getenv(flight.EnvKept) != "",
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals, Keeper: keeper, Version: version(),
	})
	return status, err
}

// find is spawn.Find for ranks on other hosts. A name without a slash is a command that each host has itself, unless
// there is a folder of that name here, to be built.
func (h *hostOptions) find(name string) (path string, folder bool, err error) {
	path, folder, err = spawn.Find(name)
	command := name != "." && name != ".." && !strings.Contains(name, "/")
	switch {
	case err == nil && folder:
		return path, true, nil
	case command && name != "":
		return name, false, nil
	case err != nil && (!h.noCopy || name == ""): // with --no-copy, what is there counts
		return "", false, err
	}
	path, err = filepath.Abs(name)
	return path, false, err
}

// passedOn returns the variables that ranks on other hosts get from here: cohort's own, but for those that
// each host has to have its own of.
func passedOn(env []string) []string {
	local := []string{
		spawn.EnvBackend, spawn.EnvRank, spawn.EnvSize, spawn.EnvJob, flight.EnvDir, flight.EnvKept,
		"COHORT_SPAWN_KEEPER", "COHORT_JOINED", "COHORT_RUN_DIR", "COHORT_SECRET_FILE", "COHORT_SECRET", "COHORT_TCP_COORDINATOR",
	}
	var set []string
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "COHORT_") && !slices.Contains(local, name) {
			set = append(set, v)
		}
	}
	return set
}
