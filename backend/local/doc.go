// Package local is the backend for ranks that are goroutines of one process.
//
// # Messages
//
// Every rank has a queue of posted receives and one of arrived messages, under
// one lock. A sender that finds the receive posted copies straight into its
// buffer. Otherwise a short message of standard mode is copied and the send is
// complete; a longer one, or one that would make the copies too many, is
// offered: the receiver copies it out of the sender's buffer. Locks are not held
// during long copies.
//
// # Collectives
//
// The ranks of a communicator meet: each posts its call and counts itself in,
// and the last one compares the calls before it lets the others go. Short inputs
// are posted with the call, so that one meeting is all there is; for long ones
// the ranks read each other's buffers (package direct) and meet again before
// anyone returns.
//
// # Waiting
//
// A rank that has to wait spins for a bounded time if every rank can have a
// processor, and then parks. A context or timeout is watched only while parked.
//
// # Failures
//
// Whoever ends a communicator or the job takes every pending operation out of
// the queues and completes it with the error. A rank that leaves a collective
// early waits until no other rank is reading its buffers.
package local
