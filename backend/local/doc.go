// Package local is the backend for ranks that are goroutines of one process.
//
// # Messages
//
// Every rank has a queue of posted receives and one of arrived messages, under one
// lock. A sender that finds the receive posted copies straight into its buffer.
// Otherwise a short message of standard mode is copied, and the send is complete. A
// longer message stays in the sender's buffer, and the receiver copies it from there;
// so does any message once the copies take too much memory. Locks are not held during
// long copies.
//
// Where every rank has a processor, most short messages do without the sender taking the lock.
// A blocking receive that spins waits in its rank's cell before it is posted, and a sender
// delivers a message of up to 16 KiB there. Otherwise the sender leaves a message of up to 40
// bytes in the receiver's ring. The receiver delivers it when it next takes the lock, or while
// it waits. While the receiver sleeps, senders take the lock.
//
// # Collectives
//
// The ranks of a communicator arrive in rounds: each publishes its call in a cache line.
// Where every rank has a processor, each looks at the lines of all others and compares the
// calls. Otherwise the last one to arrive compares them and releases the others.
// Short inputs are published with the call, so one round is enough. For long inputs
// the ranks read each other's buffers (package direct) and arrive in another round
// before any of them returns.
//
// # Waiting
//
// A rank that has to wait spins for a bounded time if every rank can have a processor,
// and then parks, as a follower in its rank's crew (internal/wait). It checks its context and
// timeout only while parked.
//
// # Failures
//
// A goroutine that ends a communicator or the job takes every pending operation out of
// the queues and completes it with the error. A rank that leaves a collective early
// waits until no other rank is reading its buffers.
package local
