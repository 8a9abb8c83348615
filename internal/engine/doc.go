// Package engine moves messages between the ranks of a job: matching, eager and rendezvous protocol,
// requests, probes, cancellation, waiting, the life of communicators, and the loss of ranks. Links move
// the bytes, and the backend finds the other ranks.
//
// # Messages
//
// A message of up to the link's EagerMax is one frame. Bytes that the link cannot take at once wait in the
// peer's queue, and the operation completes when the last byte is written. A longer message uses a
// rendezvous: the sender sends ready-to-send (RTS), and the receiver answers clear-to-send (CTS) when its
// receive is posted. The data follow in pieces, so that other messages can go between them. Where the
// kernel's copies are faster than the link, the RTS exposes the data, and both ranks copy them from
// process to process (memlink.Transfer).
//
// # Waiting
//
// A goroutine that waits makes progress for the whole process. One waiter, the leader, polls all links
// for a bounded time and then sleeps until one of them has something. The other waiters sleep until they
// are woken. While no goroutine waits, the ticker makes progress once each tick (newHeartbeat).
//
// # Losses
//
// A rank is lost when its link ends without a goodbye, when nothing has arrived from it for the heartbeat
// limit, when it sends an invalid frame, or when a rank declares it lost (Declare). On Linux a rank of this node
// does not count as silent while the kernel says that its process runs. The first rank to notice a loss sends
// all others a notice, reads what has arrived from the lost rank, and closes its link with it.
// A loss ends the communicators that have not acknowledged it. When a link has carried nothing for a
// quarter of the limit, the ticker sends a heartbeat, so a rank may compute for any time.
//
// Where ranks have no link, the lowest rank, the hub, forwards the notices that all ranks need (package
// membership). A rank that does not answer a request for a link within the limit is lost for the rank that asked.
//
// Two ranks that are alive and lose their link declare each other lost. Every other rank believes the
// notice that arrives first. If they do not all believe the same one, both ranks are lost. If a network
// splits in two, each part continues without the other if its program does.
//
// # Trust
//
// The other ranks may have bugs. Every length, token, and rank of a frame is checked. A rank that sends an
// invalid frame is lost, with an error that says so.
package engine
