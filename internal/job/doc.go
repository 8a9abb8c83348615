// Package job decides what follows from the events of a job of several ranks, such as a failed rank,
// a lost host, a signal, or a limit of time.
//
// A [Machine] starts no process and reads no clock. Its owner, internal/spawn or internal/remote, starts
// and watches the ranks, calls a method for each event, and carries out what the machine asks for through
// the functions of its [Config].
//
// # How a job ends
//
// A job ends when every rank has ended. The first rank to fail gives the job its status. The others have
// [Config.Grace] to notice and to end by themselves. Those that still run then are terminated, and killed
// [Config.KillAfter] later. Other reasons to end a job, such as a timeout, terminate the ranks at once.
package job
