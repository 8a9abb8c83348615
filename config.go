package cohort

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cohort-hpc/cohort/internal/flight"
)

// Config says how to join a job. The zero value, and nil, take everything from
// the environment and find out the rest; what is set here beats the environment.
// docs/environment.md lists the variables.
type Config struct {
	// Backend is auto, mpi, tcp, shm or local (COHORT_BACKEND). Empty is auto: the
	// first whose launch is detected.
	Backend string

	// Rank and Size are this process's place in the job (COHORT_RANK,
	// COHORT_SIZE), which the launcher sets. Rank counts only if Size is above 0.
	Rank, Size int

	// Job is the job's name (COHORT_JOB): the same on all its ranks, and on no
	// rank of another job.
	Job string

	// Coordinator is where the ranks of the tcp backend meet (COHORT_TCP_COORDINATOR),
	// HOST:PORT: there rank 0 listens, and the others find it. launcher@HOST:PORT
	// stands for a launcher that listens there itself.
	Coordinator string

	// Interface says where a rank of the tcp backend listens for the others
	// (COHORT_TCP_IFACE): names of interfaces, networks such as 10.1.0.0/16, and
	// addresses, separated by commas, or any. Empty is the loopback interface if the
	// coordinator is there, and any if not.
	Interface string

	// Ports are those at which a rank of the tcp backend may listen for the others
	// (COHORT_TCP_PORTS), such as 20000-20100: one at least for each rank of a node and
	// address. Empty is any that is free.
	Ports string

	// Connect says when the ranks of the tcp backend connect to each other (COHORT_TCP_CONNECT): start,
	// all of them in Init, or demand, each two when one of them first has something for the other.
	// Empty is start for up to 64 ranks, and demand above. It is the same on all ranks.
	Connect string

	// Checksum has the tcp backend send a checksum with all data, and compare it where they
	// arrive (COHORT_TCP_CHECKSUM=1): data that were changed on the way are the loss of
	// the rank that sent them. It is the same on all ranks.
	Checksum bool

	// TLSCert, TLSKey, and TLSCA have the ranks of the tcp backend talk over TLS 1.3
	// (COHORT_TCP_TLS_CERT, COHORT_TCP_TLS_KEY, COHORT_TCP_TLS_CA): files, in PEM, with this
	// rank's certificate, its key, and the certificates of the authorities that sign those of
	// the ranks. TLSName is the DNS name that all the certificates have (COHORT_TCP_TLS_NAME);
	// empty is cohort. Shared memory within a node is used beside TLS.
	TLSCert, TLSKey, TLSCA, TLSName string

	// Sockets has the ranks of the tcp backend talk over sockets on one node too, where
	// they would use shared memory (COHORT_TCP_SHM=0).
	Sockets bool

	// SecretFile is the path of a file with the secret that the ranks of the tcp
	// backend know each other by (COHORT_SECRET_FILE): 32 random bytes, or 64
	// hexadecimal digits, which only this user can read.
	SecretFile string

	// Resilient says that the program goes on when ranks are lost (COHORT_RESILIENT=1; [Comm.Shrink]): cohort
	// run then lets the others run when one fails. Under MPI it has no effect.
	Resilient bool

	// Timeout limits every operation (COHORT_TIMEOUT, a Go duration); 0 is no
	// limit.
	Timeout time.Duration

	// FlightDir is the folder in which the flight recorder leaves a file of this rank's
	// last operations when one fails because of others, or on SIGQUIT (COHORT_FLIGHT_DIR);
	// empty: nowhere. The command cohort report reads the files.
	FlightDir string

	// Heartbeat is how long another rank may be silent on the shm and tcp backends before it is taken
	// for lost (COHORT_HEARTBEAT, a Go duration, or off): stopped, or, on tcp, cut off. A rank that
	// computes is not silent. It is 100ms or more, 0 is 10 s, below 0 is off, and it is the same on all
	// ranks.
	Heartbeat time.Duration

	// JoinTimeout is how long the ranks of the shm and tcp backends wait for each other in Init
	// (COHORT_JOIN_TIMEOUT, a Go duration); 0 is 60 s. The first rank whose time is up ends it for all.
	JoinTimeout time.Duration

	// Check makes the mpi backend find mismatched collectives (COHORT_CHECK=1).
	// The built-in backends always do.
	Check bool

	// Deterministic gives reductions on the mpi backend the order they have on
	// the built-in ones, where it is always the same.
	Deterministic bool

	// MPILib is the path of the MPI library to load instead of searching
	// (COHORT_MPI_LIB).
	MPILib string

	// Collectives chooses how collectives run (COHORT_COLLECTIVES): native, or
	// empty, as the backend does best; schedule by messages, in all their forms, to
	// compare and to test.
	Collectives string

	// What follows is for the mpi backend alone. What a library cannot do is an
	// ErrInit.

	// ThreadLevel is how the program's threads share the library
	// (COHORT_MPI_THREAD): single, funneled, serialized or multiple, which empty is
	// too.
	ThreadLevel string

	// CUDA says whether the library is to take buffers in a GPU's memory
	// (COHORT_MPI_CUDA): on, off, or auto, which empty is too: as the library does
	// by itself.
	CUDA string

	// EagerLimit is the length in bytes up to which a message is sent before its
	// receive is known (COHORT_MPI_EAGER), BufferSize that of the buffers between
	// processes of one node (COHORT_MPI_BUFFER); 0 is the library's own choice.
	EagerLimit, BufferSize int

	// Tuning chooses the library's algorithms: collectives' names, such as
	// allreduce, with the library's names of algorithms (COHORT_MPI_TUNING, as in
	// allreduce=ring,bcast=binomial).
	Tuning map[string]string

	// Profiling has the library count what is sent, where it can: Open MPI does
	// (COHORT_MPI_PROFILE=1). Tools that measure MPI programs see cohort's calls in any case.
	Profiling bool
}

// settings is a Config with the environment's values filled in.
type settings struct {
	Config
	sized bool // Rank and Size are known
}

// Where the settings come from. Tests replace them.
type environment func(string) (string, bool)

var osEnv environment = os.LookupEnv

// get returns a variable's value, "" if it is empty or not there.
func (e environment) get(name string) string {
	v, _ := e(name)
	return v
}

// flag sets a field that is not set if a variable says so.
func (e environment) flag(field *bool, name string) error {
	switch v := e.get(name); v {
	case "", "0":
	case "1":
		*field = true
	default:
		return initFault("%s is %q: allowed are 0 and 1", name, v)
	}
	return nil
}

// duration sets a field that is not set to what a variable says, and checks it.
func (e environment) duration(field *time.Duration, name string) error {
	if v := e.get(name); *field == 0 && v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return initFault("%s is %q: want a duration such as 30s or 5m", name, v)
		}
		*field = d
	}
	if *field < 0 {
		return initFault("%s is %v: want 0 or more", name, *field)
	}
	return nil
}

// settle fills in from the environment what cfg leaves open.
func settle(cfg *Config, env environment) (settings, error) {
	var s settings
	if cfg != nil {
		s.Config = *cfg
	}
	text := func(field *string, name string) {
		if *field == "" {
			*field = env.get(name)
		}
	}
	text(&s.Backend, "COHORT_BACKEND")
	text(&s.Job, "COHORT_JOB")
	text(&s.Coordinator, "COHORT_TCP_COORDINATOR")
	text(&s.Interface, "COHORT_TCP_IFACE")
	text(&s.TLSCert, "COHORT_TCP_TLS_CERT")
	text(&s.TLSKey, "COHORT_TCP_TLS_KEY")
	text(&s.TLSCA, "COHORT_TCP_TLS_CA")
	text(&s.TLSName, "COHORT_TCP_TLS_NAME")
	text(&s.Ports, "COHORT_TCP_PORTS")
	text(&s.SecretFile, "COHORT_SECRET_FILE")
	text(&s.MPILib, "COHORT_MPI_LIB")
	text(&s.Connect, "COHORT_TCP_CONNECT")
	text(&s.FlightDir, "COHORT_FLIGHT_DIR")
	text(&s.Collectives, "COHORT_COLLECTIVES")
	if s.Backend == "" {
		s.Backend = "auto"
	}
	switch s.Collectives {
	case "", "native", "schedule":
	default:
		return s, initFault("COHORT_COLLECTIVES is %q: allowed are native and schedule", s.Collectives)
	}
	if err := env.duration(&s.Timeout, "COHORT_TIMEOUT"); err != nil {
		return s, err
	}
	if err := env.duration(&s.JoinTimeout, "COHORT_JOIN_TIMEOUT"); err != nil {
		return s, err
	}
	if err := env.flag(&s.Checksum, "COHORT_TCP_CHECKSUM"); err != nil {
		return s, err
	}
	switch s.Connect {
	case "", "start", "demand":
	default:
		return s, initFault("COHORT_TCP_CONNECT is %q: allowed are start and demand", s.Connect)
	}
	switch v := env.get("COHORT_TCP_SHM"); v {
	case "", "1":
	case "0":
		s.Sockets = true
	default:
		return s, initFault("COHORT_TCP_SHM is %q: allowed are 0 and 1", v)
	}
	if err := s.settleHeartbeat(env.get("COHORT_HEARTBEAT")); err != nil {
		return s, err
	}
	if err := env.flag(&s.Check, "COHORT_CHECK"); err != nil {
		return s, err
	}
	if err := env.flag(&s.Resilient, "COHORT_RESILIENT"); err != nil {
		return s, err
	}
	if err := s.settleMPI(env); err != nil {
		return s, err
	}
	return s, s.place(env)
}

// checkFlight says why the flight recorder's folder will not do, and makes it if it is not there.
func (s *settings) checkFlight() error {
	if err := flight.Check(s.FlightDir); err != nil {
		return initFault("the folder of the flight recorder (COHORT_FLIGHT_DIR): %v", err)
	}
	return nil
}

// heartbeatMin is the shortest limit that a busy machine can hold.
const heartbeatMin = 100 * time.Millisecond

func (s *settings) settleHeartbeat(v string) error {
	switch {
	case s.Heartbeat != 0 || v == "":
	case v == "off":
		s.Heartbeat = -1
	default:
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 { // neither the default nor none is what everybody would take 0 for
			return initFault("COHORT_HEARTBEAT is %q: want a duration such as 10s, or off", v)
		}
		s.Heartbeat = d
	}
	if s.Heartbeat > 0 && s.Heartbeat < heartbeatMin {
		return initFault("the heartbeat (COHORT_HEARTBEAT) is %v: want %v or more, or off", s.Heartbeat, heartbeatMin)
	}
	return nil
}

// place finds out which rank of how many this process is.
func (s *settings) place(env environment) error {
	if s.Size == 0 {
		size, rank := env.get("COHORT_SIZE"), env.get("COHORT_RANK")
		switch {
		case size == "" && rank == "":
			return nil
		case size == "" || rank == "":
			return initFault("COHORT_RANK and COHORT_SIZE go together: they are %q and %q", rank, size)
		}
		var err1, err2 error
		s.Size, err1 = strconv.Atoi(size)
		s.Rank, err2 = strconv.Atoi(rank)
		if err1 != nil || err2 != nil || s.Size < 1 {
			return initFault("COHORT_RANK is %q and COHORT_SIZE is %q: want numbers", rank, size)
		}
	}
	if s.Size < 0 || s.Rank < 0 || s.Rank >= s.Size {
		return initFault("rank %d of a job of %d ranks", s.Rank, s.Size)
	}
	s.sized = true
	return nil
}

func initFault(format string, args ...any) error {
	return fault(ErrInit, fmt.Sprintf(format, args...))
}
