package cohort

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/pod"
)

// settings is a Config completed from the environment.
type settings struct {
	Config
	entry
	count   bool     // operations are counted
	stats   string   // file for the summary of what is counted
	runDir  string   // where this rank leaves notes for cohort run; empty: nowhere
	foreign bool     // see isForeign
	notes   []string // for Diagnostics
	secret  string   // of the job, if it is not in a file
}

// environment looks up a variable, as os.LookupEnv does.
type environment func(string) (string, bool)

// osEnv is where the settings come from. Tests replace it.
var osEnv environment = os.LookupEnv

// get returns a variable's value, "" if it is unset.
func (e environment) get(name string) string {
	v, _ := e(name)
	return v
}

// variable ties an environment variable to a field of Config.
type variable struct {
	name, path string
	field      any // a pointer; fill lists the types
}

// Pointers of these types stand for fields that have their own syntax.
type (
	negated   bool // the variable is 0 where the field is true
	heartbeat time.Duration
)

// variables returns all of them but those of Rank and Size, which are read together.
func (c *Config) variables() []variable {
	return []variable{
		{"COHORT_BACKEND", "Backend", &c.Backend},
		{"COHORT_JOB", "Job", &c.Job},
		{"COHORT_RESILIENT", "Resilient", &c.Resilient},
		{"COHORT_TIMEOUT", "Timeout", &c.Timeout},
		{"COHORT_HEARTBEAT", "Heartbeat", (*heartbeat)(&c.Heartbeat)},
		{"COHORT_JOIN_TIMEOUT", "JoinTimeout", &c.JoinTimeout},
		{"COHORT_FLIGHT_DIR", "FlightDir", &c.FlightDir},
		{"COHORT_CHECK", "Check", &c.Check},
		{"COHORT_DETERMINISTIC", "Deterministic", &c.Deterministic},
		{"COHORT_COLLECTIVES", "Collectives", &c.Collectives},
		{"COHORT_TCP_COORDINATOR", "TCP.Coordinator", &c.TCP.Coordinator},
		{"COHORT_TCP_IFACE", "TCP.Interface", &c.TCP.Interface},
		{"COHORT_TCP_PORTS", "TCP.Ports", &c.TCP.Ports},
		{"COHORT_SECRET_FILE", "TCP.SecretFile", &c.TCP.SecretFile},
		{"COHORT_TCP_CONNECT", "TCP.Connect", &c.TCP.Connect},
		{"COHORT_TCP_CHECKSUM", "TCP.Checksum", &c.TCP.Checksum},
		{"COHORT_TCP_SHM", "TCP.Sockets", (*negated)(&c.TCP.Sockets)},
		{"COHORT_TCP_TLS_CERT", "TCP.TLS.Cert", &c.TCP.TLS.Cert},
		{"COHORT_TCP_TLS_KEY", "TCP.TLS.Key", &c.TCP.TLS.Key},
		{"COHORT_TCP_TLS_CA", "TCP.TLS.CA", &c.TCP.TLS.CA},
		{"COHORT_TCP_TLS_NAME", "TCP.TLS.Name", &c.TCP.TLS.Name},
		{"COHORT_MPI_LIB", "MPI.Lib", &c.MPI.Lib},
		{"COHORT_MPI_THREAD", "MPI.ThreadLevel", &c.MPI.ThreadLevel},
		{"COHORT_MPI_CUDA", "MPI.CUDA", &c.MPI.CUDA},
		{"COHORT_MPI_EAGER", "MPI.EagerLimit", &c.MPI.EagerLimit},
		{"COHORT_MPI_BUFFER", "MPI.BufferSize", &c.MPI.BufferSize},
		{"COHORT_MPI_TUNING", "MPI.Tuning", &c.MPI.Tuning},
		{"COHORT_MPI_PROFILE", "MPI.Profiling", &c.MPI.Profiling},
	}
}

// resolve completes cfg from the environment and checks it.
func resolve(cfg *Config, env environment) (settings, error) {
	var s settings
	if cfg != nil {
		s.Config = *cfg
		s.MPI.Tuning = maps.Clone(cfg.MPI.Tuning)
	}
	for _, v := range s.variables() {
		if err := v.fill(env.get(v.name)); err != nil {
			return s, err
		}
	}
	if s.Backend == "" {
		s.Backend = "auto"
	}
	if kept := keptSecret.Load(); s.TCP.SecretFile == "" {
		s.secret = env.get(envSecret)
		if s.secret == "" && kept != nil {
			s.secret = *kept
		}
	}
	if file := env.get(flight.EnvStats); file != "" {
		s.count = true
		if file != flight.CountOnly {
			s.stats = file
		}
	}
	if err := s.place(env); err != nil {
		return s, err
	}
	if name, _ := env.rank(); name == pod.Index && !cfg.setsRank() && (s.Backend == "auto" || s.Backend == "tcp") {
		hostname, hosts := pod.Files()
		if err := s.pod(env.get(pod.Replicas), hostname, hosts); err != nil {
			return s, err
		}
	}
	s.foreign = s.isForeign(cfg, env)
	if _, rank := env.rank(); s.foreign {
		s.stats, s.FlightDir = "", ""
		if cfg != nil {
			s.FlightDir = cfg.FlightDir
		}
	} else if rank != "" {
		s.runDir = env.get("COHORT_RUN_DIR")
	}
	return s, s.inherited(cfg, env)
}

// fill sets a field that has its zero value to what text says, unless that is empty, and checks it.
func (v variable) fill(text string) error {
	switch f := v.field.(type) {
	case *string:
		if *f == "" {
			*f = text
		}
	case *bool:
		return fillBool(v, f, text, "1")
	case *negated:
		return fillBool(v, (*bool)(f), text, "0")
	case *CollectivesMode:
		return fillChoice(v, f, text, CollectivesNative, CollectivesSchedule)
	case *ConnectMode:
		return fillChoice(v, f, text, ConnectAtStart, ConnectOnDemand)
	case *ThreadLevel:
		return fillChoice(v, f, text, ThreadMultiple, ThreadSerialized, ThreadFunneled, ThreadSingle)
	case *CUDASupport:
		return fillChoice(v, f, text, CUDAAuto, CUDAOn, CUDAOff)
	case *time.Duration:
		return fillNumber(v, f, text, time.ParseDuration, 0, "a duration of 0 or more, such as 30s or 5m")
	case *int:
		return fillNumber(v, f, text, strconv.Atoi, 0, "a number of bytes, 0 or more")
	case *heartbeat:
		return v.fillHeartbeat((*time.Duration)(f), text)
	case *map[string]string:
		return v.fillTuning(f, text)
	}
	return nil
}

// bad returns the error for a value that was found in the environment, or in Config if text is empty.
func (v variable) bad(text string, value any, want string) error {
	if text != "" {
		return initFault("%s is %q; want %s", v.name, text, want)
	}
	return initFault("Config.%s is %v; want %s", v.path, value, want)
}

func fillBool(v variable, field *bool, text, on string) error {
	if *field || text == "" {
		return nil
	}
	if text != "0" && text != "1" {
		return v.bad(text, nil, "0 or 1")
	}
	*field = text == on
	return nil
}

func fillChoice[T ~string](v variable, field *T, text string, allowed ...T) error {
	if *field != "" {
		text = ""
	} else if *field = T(text); text == "" {
		return nil
	}
	if slices.Contains(allowed, *field) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return v.bad(text, strconv.Quote(string(*field)), enumerate(names))
}

func fillNumber[T ~int | ~int64](v variable, field *T, text string, parse func(string) (T, error), least T, want string) error {
	if *field != 0 {
		text = ""
	} else if text != "" {
		n, err := parse(text)
		if err != nil {
			return v.bad(text, nil, want)
		}
		*field = n
	}
	if *field < least {
		return v.bad(text, *field, want)
	}
	return nil
}

func (v variable) fillHeartbeat(field *time.Duration, text string) error {
	if *field == 0 && text == "off" {
		*field = -1
	}
	if *field < 0 || *field == 0 && text == "" {
		return nil
	}
	// In the environment 0 is an error: readers could take it for the default or for off.
	return fillNumber(v, field, text, time.ParseDuration, backend.HeartbeatMin, fmt.Sprintf("a duration of %v or more, or off", backend.HeartbeatMin))
}

func (v variable) fillTuning(field *map[string]string, text string) error {
	if *field == nil && text != "" {
		tuning := make(map[string]string)
		for item := range strings.SplitSeq(text, ",") {
			op, algorithm, ok := strings.Cut(strings.TrimSpace(item), "=")
			if !ok {
				return initFault("%s contains %q; want operation=algorithm, as in allreduce=ring,bcast=binomial", v.name, item)
			}
			if _, twice := tuning[op]; twice {
				return initFault("%s contains %s twice", v.name, op)
			}
			tuning[op] = algorithm
		}
		*field = tuning
	}
	for _, op := range slices.Sorted(maps.Keys(*field)) { // sorted, for the same first error each time
		if !slices.Contains(tunable, op) {
			return initFault("%s contains the operation %q; want %s", v.name, op, enumerate(tunable))
		}
		odd := func(r rune) bool {
			return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
		}
		// Only the library has the list of its algorithms.
		if algorithm := (*field)[op]; algorithm == "" || strings.ContainsFunc(algorithm, odd) {
			return initFault("%s contains the algorithm %q for %s; want a name of lower-case letters, digits, - and _", v.name, algorithm, op)
		}
	}
	return nil
}

// tunable lists the operations that Tuning may name.
var tunable = func() (names []string) {
	for coll := backend.Barrier; coll <= backend.Exscan; coll++ {
		names = append(names, comm.CollName(coll, backend.Blocking))
	}
	return names
}()

// enumerate returns "a, b or c".
func enumerate(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// envSecret has the job's secret, for launchers that give programs no files. Init removes it from the environment, so
// that programs which this one starts do not get it, and keeps it for another Init after one that failed.
const envSecret = "COHORT_SECRET"

var keptSecret atomic.Pointer[string]

// takeSecret moves the secret out of the environment.
func takeSecret(env environment) {
	if secret := env.get(envSecret); secret != "" {
		keptSecret.Store(&secret)
		_ = os.Unsetenv(envSecret) // it fails for names that are none
	}
}

// checkFlight creates the flight recorder's folder if it does not exist. If it cannot be written to, the recorder
// writes no files, and Diagnostics says why. It is an error if that is for a summary that was asked for.
func (s *settings) checkFlight() error {
	err := flight.Check(s.FlightDir)
	if s.stats != "" {
		err = cmp.Or(err, flight.Check(filepath.Dir(s.stats)))
	}
	if st, e := os.Stat(s.stats); e == nil && st.IsDir() {
		err = fmt.Errorf("%s is a folder, want the name of a file", s.stats)
	}
	if err != nil && s.stats != "" {
		return initFault("%s: %v", flight.EnvStats, err)
	}
	if err != nil {
		s.notes = append(s.notes, fmt.Sprintf("the flight recorder writes no files (COHORT_FLIGHT_DIR): %v", err))
		s.FlightDir = ""
	}
	return nil
}

func initFault(format string, args ...any) error {
	return fault(ErrInit, fmt.Sprintf(format, args...))
}
