// Package tcp implements the backend for ranks that are processes on any machines and communicate by
// TCP.
//
// # Connections
//
// Each pair of ranks has one connection, made at the start or when the pair first needs it (demand).
// internal/wire makes and authenticates it. The descriptors are kept out of Go's network poller:
// otherwise every message would wake an idle thread of the runtime, which costs more than the message.
//
// # Messages
//
// A message of up to eagerMax bytes is sent at once: header and payload in one system call from the
// caller's buffer. The part that the socket does not accept waits in the link's queue, and the operation
// completes when the last byte is in the socket. A longer message uses a rendezvous: the sender sends
// ready-to-send (RTS), the receiver answers clear-to-send (CTS) when its receive is posted, and the data
// go from buffer to buffer in pieces, so that other messages can go between them.
//
// # Shared memory
//
// Two ranks of one node write their frames into rings in memory that they share. The socket beside it
// shows that the peer has ended, and wakes a sleeping peer. Frames from the rings are copied and then
// checked, as those from the network are. If one of the two cannot have the memory, both use the
// socket, and Diagnostics says why.
//
// # Waiting
//
// A goroutine that waits makes progress for the whole process. One waiter, the leader, reads all
// connections: for a bounded time without sleeping if every rank has a core, then it sleeps until a
// connection or the wake-up pipe is readable. The other waiters sleep until they are woken. A ticker
// goroutine makes progress ten times a second while no goroutine waits.
//
// # Collectives
//
// Collectives run as schedules of messages, which internal/sched checks.
//
// # Losses
//
// A rank is lost when its connection ends without a goodbye, when nothing has arrived from it for the
// heartbeat limit, when it sends an invalid frame, or when a rank declares it lost (Declare). The first
// rank to notice sends all others a notice, and closes its own connection with the lost rank after it
// has taken in what had arrived. A loss ends the communicators that have not acknowledged it. A link
// that has carried nothing for a quarter of the limit carries a heartbeat. A goroutine sends it, so a
// rank may compute for any time.
//
// Where ranks have no connection, the lowest rank, the hub, forwards the notices that all ranks need
// (hub.go). A rank is lost for one that has asked it for a connection and had no answer for the limit.
//
// Two ranks that are alive and lose their connection declare each other lost. The other ranks believe
// the notice that arrives first; if both arrive, both ranks are lost. If a network splits in two, each
// part goes on without the other if its program does.
//
// # Trust
//
// The other ranks have the job's secret, but may have bugs. Every length, token, and rank of a frame is
// checked. A rank that sends an invalid frame is lost, with an error that says so.
package tcp
