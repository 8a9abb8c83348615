package cohort

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// BackendInfo says of a backend whether this process can use it.
type BackendInfo struct {
	Name string

	// Priority says which of the backends that can be used is to be preferred: the one with the highest,
	// which is the one that [Init] takes by itself.
	Priority int

	// Err is nil if [Init] could use the backend, as far as that can be told without it; else it says why not.
	Err error
}

// priorities has the backends' names. Local is only there for a process that is alone, and then
// there is nothing better.
var priorities = map[string]int{"local": 60, "mpi": 50, "shm": 40, "tcp": 30}

// Backends returns what there is of each backend for this process, as it was started, those with the highest priority first.
// Nothing is initialised, and no library is loaded: files and variables are read.
//
// Local; at any time, before Init too. cfg is what Init would get, and may be nil.
func Backends(cfg *Config) []BackendInfo {
	s, err := resolve(cfg, osEnv)
	var all []BackendInfo
	for name, priority := range priorities {
		b := BackendInfo{Name: name, Priority: priority, Err: err}
		if err == nil {
			b.Err = s.available(name, osEnv)
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b BackendInfo) int { return cmp.Compare(b.Priority, a.Priority) })
	return all
}

// available says why a backend cannot be used by this process.
func (s *settings) available(name string, env environment) error {
	if _, out := missing[name]; out {
		return absent(name)
	}
	if err := s.unfit(name, env); err != nil || name != "mpi" {
		return err
	}
	if _, err := mpifind.Choose(s.MPI.Lib, env, ""); err != nil {
		return fault(ErrNotSupported, err.Error())
	}
	return nil
}

// unfit says why a backend is not for a process that was started like this one.
func (s *settings) unfit(name string, env environment) error {
	launcher := mpifind.Launched(env)
	if launcher != nil && launcher.Size <= 1 {
		launcher = nil
	}
	switch {
	case name == "local" && s.sized && s.Size > 1:
		return initFault("backend local has one rank in a process, and this is rank %d of %d; "+
			"use backend shm for several processes, or cohort.Run for several ranks in one", s.Rank, s.Size)
	case name == "local" && launcher != nil:
		return initFault("backend local was asked for in a job of %d processes started by %s (%s): "+
			"each would be a world of its own; start the program without it, or with cohort run", launcher.Size, launcher.Name, launcher.Evidence)
	case name == "shm" && !s.sized:
		return initFault("backend shm needs COHORT_RANK, COHORT_SIZE and COHORT_JOB: " +
			"start the program with cohort run, or set them on each rank")
	case name == "tcp" && (!s.sized || s.TCP.Coordinator == "" || s.TCP.SecretFile == ""):
		return initFault("backend tcp needs COHORT_RANK, COHORT_SIZE, COHORT_JOB, COHORT_TCP_COORDINATOR and " +
			"COHORT_SECRET_FILE: start the program with cohort run, or set them on each rank")
	case name == "mpi" && launcher == nil && s.sized && s.Size > 1:
		return initFault("backend mpi is for processes that MPI's launcher starts, and this is rank %d of %d of another "+
			"(COHORT_RANK, COHORT_SIZE): each would be a world of its own; start the program with mpiexec, or with cohort run --backend mpi", s.Rank, s.Size)
	}
	return nil
}

// missing has the backends that this program was built without, and why.
var missing = map[string]string{}

// absent is the error of a backend that was asked for, or detected, and is not there. More may be to
// be said.
func absent(name string, more ...string) error {
	var there []string
	for _, b := range []string{"local", "shm", "tcp", "mpi"} {
		if missing[b] == "" {
			there = append(there, b)
		}
	}
	return fault(ErrNotSupported, fmt.Sprintf("backend %s is not there: %s%s; there is %s",
		name, missing[name], strings.Join(more, ""), strings.Join(there, " and ")))
}
