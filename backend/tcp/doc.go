// Package tcp is the backend for ranks that are processes anywhere and reach each other by TCP.
//
// # Connections
//
// There is one connection for each pair of ranks, made and authenticated by internal/wire. The
// descriptors are kept from Go's network poller: every message that arrives would wake an idle
// thread of the runtime otherwise, which costs more than the message.
//
// # Messages
//
// A message up to eagerMax bytes goes out at once, header and payload in one system call from the
// caller's buffer; what the socket does not take waits in the link's queue, and the operation is
// complete when the last byte is in the socket. A longer one is offered: the receiver accepts it
// when its receive is posted, and the data go from buffer to buffer in pieces, so that other
// messages can go between.
//
// # Waiting
//
// Whoever waits makes the progress of the process: one waiter reads all connections, for a bounded
// time without sleeping if every rank has a core, and then sleeps until one of them, or the wake
// pipe, has something to read; the other waiters sleep until they are told. A goroutine sees to
// progress while nobody waits, ten times a second.
//
// # Collectives
//
// They run as schedules of messages, which internal/sched checks.
//
// # Trust
//
// The other ranks have the secret of the job, but may be wrong. Every length, token, and rank of a
// frame is checked; a frame that cannot be right ends the job with an error that says so.
package tcp
