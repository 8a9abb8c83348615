package cohort

import "time"

// Config says how to join a job. With the zero Config or nil, Init reads the settings from the
// environment and detects the rest. A field that is set here overrides its environment variable,
// which is given in parentheses. Settings for backends other than the one in use are ignored.
type Config struct {
	// Backend is "auto", "mpi", "tcp", "shm" or "local", or a name that was passed to [Register]
	// (COHORT_BACKEND). Empty means auto: Init detects how the process was started and selects the
	// backend that fits.
	Backend string

	// Rank and Size are the process's place in the job (COHORT_RANK, COHORT_SIZE). The launcher sets
	// them. Rank is used only if Size is above 0.
	Rank, Size int

	// Job is the job's name (COHORT_JOB). It is the same on all ranks of a job. Two jobs of one
	// user on one node must have different names.
	Job string

	// Resilient declares that the program continues when ranks fail (COHORT_RESILIENT=1; see
	// [Comm.Shrink]). cohort run then leaves the other ranks running. It has no effect on the mpi
	// backend, where the launcher decides.
	Resilient bool

	// Timeout limits every operation (COHORT_TIMEOUT). Zero means no limit.
	Timeout time.Duration

	// Heartbeat is how long another rank may be silent on the shm and tcp backends before it counts
	// as lost (COHORT_HEARTBEAT, a duration or off). A rank that computes is not silent; a rank that
	// is stopped or cut off from the network is. Zero means 10 s, a negative value turns the check
	// off, and the shortest allowed is 100 ms. It must be the same on all ranks.
	Heartbeat time.Duration

	// JoinTimeout is how long the ranks of the shm and tcp backends wait for each other in Init
	// (COHORT_JOIN_TIMEOUT). Zero means 60 s, in pods of a Kubernetes Job 10 minutes. When it
	// expires on one rank, Init fails on all. Under cohort run --restarts, the time begins when all
	// ranks have called Init or Rejoin.
	JoinTimeout time.Duration

	// FlightDir is the folder for the flight recorder's files (COHORT_FLIGHT_DIR). A rank writes its
	// last operations there when an operation fails because of other ranks, and on SIGQUIT. The
	// command cohort report reads the files. Empty means that none are written.
	FlightDir string

	// Check makes every rank wait in every collective until the ranks' calls have been compared
	// (COHORT_CHECK=1). Deterministic fixes the order of reductions on the mpi backend
	// (COHORT_DETERMINISTIC=1). Collectives selects the implementation of collectives
	// (COHORT_COLLECTIVES). docs/environment.md has a table of what they change on each backend.
	Check         bool
	Deterministic bool
	Collectives   CollectivesMode

	// TCP holds the settings of the tcp backend, MPI those of the mpi backend.
	TCP TCPConfig
	MPI MPIConfig
}

// TCPConfig holds the settings of the tcp backend. All but Interface, Ports and the paths of files
// must be the same on all ranks.
type TCPConfig struct {
	// Coordinator is the address where the ranks meet, HOST:PORT (COHORT_TCP_COORDINATOR). Rank 0
	// listens there. With launcher@HOST:PORT, the launcher listens there instead. In pods of a
	// Kubernetes Job and under srun the host may be left out.
	Coordinator string

	// Interface selects the addresses on which this rank accepts connections (COHORT_TCP_IFACE):
	// names of interfaces, networks such as 10.1.0.0/16, and addresses, separated by commas; or any.
	// Empty means the loopback interface if the coordinator is on it, else any.
	Interface string

	// Ports is the range of ports on which this rank may accept connections, such as 20000-20100
	// (COHORT_TCP_PORTS). Each rank on a node needs one per address. Rank 0 needs one more unless
	// Coordinator is set. [Rejoin] may need more; docs/tcp.md says when. Empty means any free port.
	Ports string

	// SecretFile is the path of a file with the job's secret, by which the ranks authenticate each
	// other (COHORT_SECRET_FILE): 32 random bytes, or 64 hexadecimal digits. Only this user may have
	// access to it, unless it is a Secret that Kubernetes has mounted. COHORT_SECRET is the secret
	// itself, for programs that have no file.
	SecretFile string

	// Connect says when the ranks connect to each other (COHORT_TCP_CONNECT).
	Connect ConnectMode

	// Checksum adds a checksum to the data that go through sockets (COHORT_TCP_CHECKSUM=1). A rank
	// whose data arrive corrupted counts as lost. Headers always have a checksum.
	Checksum bool

	// Sockets makes ranks on one node use sockets instead of shared memory (COHORT_TCP_SHM=0).
	Sockets bool

	// TLS encrypts the connections.
	TLS TLSConfig
}

// TLSConfig makes the ranks of the tcp backend communicate over TLS 1.3. Cert, Key and CA are set
// together, on all ranks. Ranks on one node still use shared memory, unless TCPConfig.Sockets is set.
type TLSConfig struct {
	Cert string // PEM file with this rank's certificate (COHORT_TCP_TLS_CERT)
	Key  string // PEM file with the certificate's key (COHORT_TCP_TLS_KEY)
	CA   string // PEM file with the authorities that sign the ranks' certificates (COHORT_TCP_TLS_CA)
	Name string // DNS name in all certificates (COHORT_TCP_TLS_NAME); empty means "cohort"
}

// MPIConfig holds the settings of the mpi backend. If the library does not support one of them,
// other than Profiling, Init returns [ErrInit].
type MPIConfig struct {
	// Lib is the path or name of the MPI library to load (COHORT_MPI_LIB). Empty means to search.
	Lib string

	// ThreadLevel says how the program's goroutines share the library (COHORT_MPI_THREAD). Empty
	// means ThreadMultiple. If the library grants less, Init returns [ErrInit].
	ThreadLevel ThreadLevel

	// CUDA says whether the library should accept buffers in GPU memory (COHORT_MPI_CUDA). Empty
	// means CUDAAuto.
	CUDA CUDASupport

	// EagerLimit is the length in bytes up to which a message is sent before its receive is posted
	// (COHORT_MPI_EAGER), 256 or more. Zero means the library's default.
	EagerLimit int

	// BufferSize is the length in bytes of the buffers between processes of one node
	// (COHORT_MPI_BUFFER). Zero means the library's default.
	BufferSize int

	// Tuning selects the library's algorithms: it maps names of collectives, such as allreduce, to
	// the library's names of algorithms (COHORT_MPI_TUNING, as in allreduce=ring,bcast=binomial).
	Tuning map[string]string

	// Profiling makes the library count messages and bytes, if it can (COHORT_MPI_PROFILE=1). Open
	// MPI can. Tools that profile MPI programs do not need this setting.
	Profiling bool
}

// CollectivesMode selects the implementation of collectives.
type CollectivesMode string

const (
	// CollectivesNative uses the backend's own collectives where it has them. It is the default.
	CollectivesNative CollectivesMode = "native"
	// CollectivesSchedule builds all collectives from messages, for comparisons and tests.
	CollectivesSchedule CollectivesMode = "schedule"
)

// ConnectMode is when the ranks of the tcp backend connect to each other.
type ConnectMode string

const (
	// ConnectAuto is ConnectAtStart for up to 64 ranks, else ConnectOnDemand.
	ConnectAuto ConnectMode = ""
	// ConnectAtStart makes all connections in Init.
	ConnectAtStart ConnectMode = "start"
	// ConnectOnDemand connects two ranks when one first sends to the other.
	ConnectOnDemand ConnectMode = "demand"
)

// ThreadLevel is how the goroutines of a program share the MPI library (MPI-4.1 section 11.6).
type ThreadLevel string

const (
	// ThreadSingle allows calls only from the goroutine that called Init. It tells the library that
	// the process has no other threads.
	ThreadSingle ThreadLevel = "single"
	// ThreadFunneled allows calls only from the goroutine that called Init, which stays on its
	// thread.
	ThreadFunneled ThreadLevel = "funneled"
	// ThreadSerialized allows calls from all goroutines; this package makes them one at a time.
	ThreadSerialized ThreadLevel = "serialized"
	// ThreadMultiple allows concurrent calls from all goroutines. It is the default.
	ThreadMultiple ThreadLevel = "multiple"
)

// CUDASupport is whether the MPI library accepts buffers in GPU memory.
type CUDASupport string

const (
	// CUDAAuto leaves the choice to the library. It is the default.
	CUDAAuto CUDASupport = "auto"
	// CUDAOn asks the library to accept them.
	CUDAOn CUDASupport = "on"
	// CUDAOff asks the library not to accept them.
	CUDAOff CUDASupport = "off"
)
