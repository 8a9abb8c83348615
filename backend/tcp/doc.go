// Package tcp is the backend for ranks that are processes anywhere and reach each other by TCP.
//
// # Connections
//
// There is one connection for each pair of ranks, or, where they are made when they are first needed, for
// each pair that has had something to say to each other (demand). internal/wire makes and authenticates it. The
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
// # Shared memory
//
// Ranks of one node write their frames into rings in memory that each two of them share, and the
// socket beside says that the peer has ended, and wakes who sleeps. What they read from there is copied
// and then checked, as what comes from the network is. Where one of the two cannot have the memory both
// use the socket, and Diagnostics says why.
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
// # Losses
//
// A rank is lost when its connection ends without a goodbye, when nothing has come from it for the
// heartbeat's limit, when it sends what cannot be right, or when somebody says so (Declare). Who
// learns of it first tells all others, and closes its own connection with the rank, after what had
// come by it has been taken in. A loss ends the communicators that do not excuse it. Links that have
// had nothing to carry for a quarter of the limit carry a heartbeat, which a goroutine sends, so that
// a rank may compute for as long as it likes.
//
// Where there is no connection, the lowest rank, the hub, passes on what all have to know (hub.go), and a
// rank is lost for who has asked it for a connection and had no answer for the limit.
//
// Ranks that lose sight of each other, and are both alive, declare each other lost. What the others
// hear first counts; if they hear both, both are lost. Of a network that falls apart into two, each
// part goes on without the other if its program does.
//
// # Trust
//
// The other ranks have the secret of the job, but may be wrong. Every length, token, and rank of a
// frame is checked; a rank that sends a frame which cannot be right is lost, with an error that says
// so.
package tcp
