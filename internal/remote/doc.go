// Package remote starts the ranks of one job on several hosts over ssh and sees them through.
//
// # Who does what
//
// The launcher, [Run], has one ssh for each host, the user's own with its configuration and keys. What
// runs at the other end is the [Agent]: the launcher's own executable, sent through ssh where the host
// does not have the same file at the same path. Each agent starts the ranks of its host with internal/spawn,
// and tells the launcher how they end; the launcher judges, as spawn does for the ranks of one node,
// what follows from it.
//
// # What they say
//
// Launcher and agent talk in frames (frame.go) over ssh's standard input and output: five bytes of kind
// and length, with a limit for each kind, and the payload. All that is secret goes through this pipe, and
// never through an argument or a variable. Output and input have a window, so that a reader who is slow stops
// the ranks that write, and never the frames that say how ranks end.
//
// # How it ends
//
// An agent that sees the end of its input, or hears nothing for [silence], ends its ranks: the launcher, ssh, or the
// network is gone. A launcher that sees the end of an agent's output, or hears nothing for as long, says which
// host is lost. An agent that is killed is survived by its keeper, which ends the ranks and removes the folder.
package remote
