package cohort

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/pod"
)

// BackendInfo describes whether this process can use a backend.
type BackendInfo struct {
	Name string // local, shm, tcp, mpi, or a name that was passed to Register

	// Priority orders the list. It is 0 for backends of [Register], which [Init] uses only if the
	// settings name them.
	Priority int

	// Chosen is true for the backend that [Init] selects. If that is mpi and its library cannot be
	// loaded, Init takes another backend by which the ranks can join, if there is one.
	Chosen bool

	// Err is nil if [Init] can probably use the backend, and otherwise the reason why it cannot.
	Err error
}

// known is a backend that has been registered.
type known struct {
	priority int
	open     func(ctx context.Context, s settings) (backend.Comm, error) // nil if there is nothing more to say than missing
	missing  string                                                      // why this program was built without it; empty: it was not
}

// backends has all backends by their names. The built-in ones are registered by this package.
var (
	backendsMu sync.RWMutex
	backends   = make(map[string]known)
)

// Register makes a backend available under a name, by which Config.Backend and COHORT_BACKEND select
// it. It is usually called from the init function of the package that implements the backend, which
// programs then import for its side effect. Package backend says what a backend has to do.
//
// Register panics if open is nil, or if the name is empty, auto, or registered already.
func Register(name string, open backend.Opener) {
	if open == nil {
		panic("cohort: Register: the opener of backend " + name + " is nil")
	}
	register(name, known{open: common(open)})
}

// common opens a backend that needs no settings of its own.
func common(open backend.Opener) func(ctx context.Context, s settings) (backend.Comm, error) {
	return func(ctx context.Context, s settings) (backend.Comm, error) { return open(ctx, s.common()) }
}

func (s *settings) common() backend.Config {
	return backend.Config{
		Rank: s.Rank, Size: s.Size, Job: s.Job, Timeout: s.Timeout, Heartbeat: s.Heartbeat, JoinTimeout: s.JoinTimeout,
		Check: s.Check, Deterministic: s.Deterministic, Share: s.share,
	}
}

func register(name string, k known) {
	backendsMu.Lock()
	defer backendsMu.Unlock()
	if _, twice := backends[name]; twice || name == "" || name == "auto" {
		panic(fmt.Sprintf("cohort: Register: the name %q is taken", name))
	}
	backends[name] = k
}

// lookup returns a backend, and one without a way to open it for an unknown name.
func lookup(name string) known {
	backendsMu.RLock()
	defer backendsMu.RUnlock()
	return backends[name]
}

// names returns the names of all backends of which fits is true, highest priority first.
func names(fits func(known) bool) (all []string) {
	backendsMu.RLock()
	defer backendsMu.RUnlock()
	for name, k := range backends {
		if fits(k) {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(backends[b].priority, backends[a].priority), cmp.Compare(a, b))
	})
	return all
}

// Backends reports which backends this process can use, highest priority first. It reads files and
// environment variables; it initializes nothing and loads no library. cfg is what Init would get, and
// may be nil.
//
// Not collective. It can be called at any time, before Init too.
func Backends(cfg *Config) []BackendInfo {
	s, err := resolve(cfg, osEnv)
	chosen := ""
	if err == nil {
		chosen, _ = s.choose(osEnv)
	}
	var all []BackendInfo
	for _, name := range names(func(known) bool { return true }) {
		b := BackendInfo{Name: name, Priority: lookup(name).priority, Chosen: name == chosen, Err: err}
		if err == nil {
			b.Err = s.available(name, osEnv)
		}
		all = append(all, b)
	}
	return all
}

// available returns an error if this process cannot use a backend.
func (s *settings) available(name string, env environment) error {
	if lookup(name).missing != "" {
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
	started := mpifind.Launched(env)
	launcher := started // of several ranks
	if started != nil && started.Size <= 1 {
		launcher = nil
	}
	noPlace := mpifind.Unplaced(env)
	switch {
	case noPlace != nil && s.placed == unplaced && (name == "local" && s.Backend == "auto" || (name == "shm" || name == "tcp") && !s.hasKeyValueSpace(env)):
		return initFault("%v; start it without that launcher's variables, or set COHORT_BACKEND=local for a world of one rank", noPlace)
	case name == "local" && s.placed != unplaced && s.Size > 1:
		return initFault("backend local has a single rank, but this process is rank %d of %d; "+
			"use backend shm for several processes, or cohort.Run for several ranks in one", s.Rank, s.Size)
	case name == "local" && s.Backend == "auto" && s.placed == unplaced && env.get(pod.Index) != "":
		return initFault("this is pod %s of a Kubernetes Job (%s), and COHORT_SIZE is not set: set it to the Job's completions, "+
			"or set COHORT_BACKEND=local for a world of one rank in each pod", env.get(pod.Index), pod.Index)
	case name == "local" && launcher != nil:
		return initFault("backend local was selected in a job of %d processes started by %s (%s): "+
			"each would be a separate world of one rank; start the program without that launcher, or with cohort run",
			launcher.Size, launcher.Name, launcher.Evidence)
	case (name == "shm" || name == "tcp") && s.placed == unplaced && !s.hasKeyValueSpace(env) && started != nil:
		asked := *s
		return asked.byNumber(name, started, env)
	case name == "shm" && s.placed == unplaced && !s.hasKeyValueSpace(env):
		return initFault("backend shm needs COHORT_RANK, COHORT_SIZE and COHORT_JOB: " +
			"start the program with cohort run, mpiexec or srun, or set them on each rank")
	case name == "tcp" && s.placed == unplaced && s.hasKeyValueSpace(env):
		return nil
	case name == "tcp" && (s.placed == unplaced || s.share == nil && (s.TCP.Coordinator == "" || s.TCP.SecretFile == "" && s.secret == "")):
		return initFault("backend tcp needs COHORT_RANK, COHORT_SIZE, COHORT_JOB, COHORT_TCP_COORDINATOR and " +
			"COHORT_SECRET_FILE or COHORT_SECRET: start the program with cohort run, mpiexec or srun, or set them on each rank")
	case name == "mpi" && launcher == nil && s.placed != unplaced && s.Size > 1:
		return initFault("backend mpi needs an MPI launcher, but another one started this process as rank %d of %d "+
			"(COHORT_RANK, COHORT_SIZE): each would be a separate world of one rank; start the program with mpiexec, or with cohort run --backend mpi",
			s.Rank, s.Size)
	}
	return nil
}

// absent is the error for a backend that this program was built without. It ends with details.
func absent(name string, details ...string) error {
	return fault(ErrNotSupported, fmt.Sprintf("backend %s is not available: %s%s; available: %s", name, lookup(name).missing,
		strings.Join(details, ""), strings.Join(names(func(k known) bool { return k.missing == "" }), ", ")))
}
