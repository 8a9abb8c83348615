package cohort

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// BackendInfo describes whether this process can use a backend.
type BackendInfo struct {
	Name string // local, shm, tcp or mpi

	// Priority orders the backends. Of those that are available, [Init] selects the one with the
	// highest priority if the settings name none.
	Priority int

	// Err is nil if [Init] can probably use the backend, and otherwise the reason why it cannot.
	Err error
}

// priorities maps the backends' names to their priorities. Local has the highest, because it is
// available only to a process without other ranks.
var priorities = map[string]int{"local": 60, "mpi": 50, "shm": 40, "tcp": 30}

// Backends reports which backends this process can use, highest priority first. It reads files and
// environment variables; it initializes nothing and loads no library. cfg is what Init would get, and
// may be nil.
//
// Local. It can be called at any time, before Init too.
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

// available returns an error if this process cannot use a backend.
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

// unfit returns an error if a backend does not fit the way this process was started.
func (s *settings) unfit(name string, env environment) error {
	launcher := mpifind.Launched(env)
	if launcher != nil && launcher.Size <= 1 {
		launcher = nil
	}
	switch {
	case name == "local" && s.sized && s.Size > 1:
		return initFault("backend local has a single rank, but this process is rank %d of %d; "+
			"use backend shm for several processes, or cohort.Run for several ranks in one", s.Rank, s.Size)
	case name == "local" && launcher != nil:
		return initFault("backend local was selected in a job of %d processes started by %s (%s): "+
			"each would be a separate world of one rank; start the program without that launcher, or with cohort run",
			launcher.Size, launcher.Name, launcher.Evidence)
	case name == "shm" && !s.sized:
		return initFault("backend shm needs COHORT_RANK, COHORT_SIZE and COHORT_JOB: " +
			"start the program with cohort run, or set them on each rank")
	case name == "tcp" && (!s.sized || s.TCP.Coordinator == "" || s.TCP.SecretFile == ""):
		return initFault("backend tcp needs COHORT_RANK, COHORT_SIZE, COHORT_JOB, COHORT_TCP_COORDINATOR and " +
			"COHORT_SECRET_FILE: start the program with cohort run, or set them on each rank")
	case name == "mpi" && launcher == nil && s.sized && s.Size > 1:
		return initFault("backend mpi needs an MPI launcher, but another one started this process as rank %d of %d "+
			"(COHORT_RANK, COHORT_SIZE): each would be a separate world of one rank; start the program with mpiexec, or with cohort run --backend mpi",
			s.Rank, s.Size)
	}
	return nil
}

// missing maps the backends that this program was built without to the reason.
var missing = map[string]string{}

// absent is the error for a backend that this program was built without. It ends with details.
func absent(name string, details ...string) error {
	var present []string
	for _, b := range []string{"local", "shm", "tcp", "mpi"} {
		if missing[b] == "" {
			present = append(present, b)
		}
	}
	return fault(ErrNotSupported, fmt.Sprintf("backend %s is not available: %s%s; available: %s",
		name, missing[name], strings.Join(details, ""), strings.Join(present, ", ")))
}
