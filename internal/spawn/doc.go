// Package spawn starts the ranks of a job on this node and sees them through:
// their places on the cores, their output, signals, the first failure, and an
// end that leaves nothing behind.
//
// # What a rank gets
//
// Its environment is the launcher's with [EnvBackend], [EnvRank], [EnvSize] and
// [EnvJob] set; ranks find each other through the job's id. It is the leader of
// a process group of its own, and has no descriptors but standard input, output
// and error and those the launcher itself was started with.
//
// # Ranks of another launcher
//
// With [Launch] another program, an MPI launcher, starts the ranks. Each process
// that it starts asks this one, over a socket, which of the job's ranks it is to
// be and gets its output, input and processors from there; then it executes the
// job's program, so that the rank is the launcher's own process. How such a
// process ended is learnt from its pidfd. The launcher's word counts where the
// system does not tell (Linux before 6.15), and where a rank was killed as the
// launcher kills when it ends a job.
//
// # How a job ends
//
// A job ends when every rank has. The first rank to fail (a status other than 0, or a signal) gives
// the job its status. The others have [Config.Grace] to notice and to end by themselves; what is left
// then gets SIGTERM, and SIGKILL after [KillAfter]. Processes that a rank leaves behind in its group
// are ended with it. A launcher that is killed takes the ranks with it: each dies with the thread that
// started it, and the [Keeper], a process that does nothing but wait for the launcher's end, kills
// their groups.
package spawn
