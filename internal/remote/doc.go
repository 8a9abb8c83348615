// Package remote starts the ranks of one job on several hosts over ssh and supervises them.
//
// # Launcher and agents
//
// The launcher, [Run], starts one ssh for each host, with the user's configuration and keys. At the other end
// runs the [Agent]: the launcher's own executable, sent through ssh unless the host has the same file at the
// same path. Each agent starts the ranks of its host with internal/spawn, and reports to the launcher how they
// end. Package internal/job decides what follows, as for the ranks of one node.
//
// # Protocol
//
// Launcher and agent exchange messages (message.go), encoded by package gob, over ssh's standard input and output. Secrets
// pass through this pipe only, never through an argument or a variable. Output and input have a window: a slow reader stops
// the ranks that write, but not the messages that report how ranks end.
//
// # Lost ranks
//
// With Config.Generations, the launcher owns the generation.Machine of the job. Each agent has the socket to which the processes
// of its host connect, passes their requests on to the launcher, and its messages to them, and starts and kills processes as
// the launcher says (replacer.go).
//
// # The end
//
// An agent ends its ranks if its input ends, or if it receives no message for [silence] intervals: then the
// launcher, ssh, or the network is gone. In the same cases the launcher reports that the host is lost. If an
// agent is killed, its keeper process ends the ranks and removes the files that were copied to the host.
package remote
