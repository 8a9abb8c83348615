// Package spawn starts the ranks of a job on this node and supervises them. It binds
// them to processors, passes on their output and signals, handles the first failure,
// and leaves no process or file behind.
//
// # What a rank gets
//
// Its environment is the launcher's with [EnvBackend], [EnvRank], [EnvSize] and
// [EnvJob] set. Ranks find each other by the job's ID. Each rank leads its own
// process group. Its only descriptors are standard input, output and error, and
// those the launcher itself was started with.
//
// # Ranks of another launcher
//
// With [Launch] another program, an MPI launcher, starts the ranks. Each process
// that it starts connects to this one over a socket and gets its output, input and
// processors. Then it executes the job's program, so the rank is the launcher's own
// process. Its exit status comes from its pidfd, or from the launcher's report where the
// kernel does not provide it (Linux before 6.15) or where a signal with which the
// launcher ends jobs killed the rank.
//
// # How a job ends
//
// Package internal/job decides when. Ranks that are terminated get SIGTERM, and SIGKILL after [KillAfter].
// Processes that a rank leaves in its group are ended too. If the launcher is killed, its ranks end too: the
// kernel kills each rank when the thread that started it ends, and the [Keeper], a process that waits for
// the launcher's end, kills the groups.
package spawn
