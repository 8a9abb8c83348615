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
// # How a job ends
//
// A job ends when every rank has. The first rank to fail (a status other than
// 0, or a signal) gives the job its status; the others get SIGTERM, and what is
// left after [Grace] SIGKILL. Processes that a rank leaves behind in its group
// are ended with it. A launcher that is killed takes the ranks with it: each
// dies with the thread that started it, and the [Keeper], a process that does
// nothing but wait for the launcher's end, kills their groups.
package spawn
