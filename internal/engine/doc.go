// Package engine moves messages between the ranks of a job: matching, eager and rendezvous protocol,
// requests, probes, cancellation, waiting, the life of communicators, and the loss of ranks. How bytes
// travel is the links' part, and how ranks find each other the backend's.
//
// # Messages
//
// A message of up to the link's EagerMax is one frame. The part that the link does not take waits in the
// peer's queue, and the operation completes when the last byte is written. A longer message uses a
// rendezvous: the sender sends ready-to-send (RTS), the receiver answers clear-to-send (CTS) when its
// receive is posted, and the data go in pieces, so that other messages can go between them. Where the
// kernel's copies are faster than the link, the RTS exposes the data, and both ranks copy them from
// process to process (memlink.Transfer).
//
// # Waiting
//
// A goroutine that waits makes progress for the whole process. One waiter, the leader, polls all links
// for a bounded time and then sleeps until one of them has something. The other waiters sleep until they
// are woken. A ticker goroutine makes progress ten times a second while no goroutine waits.
//
// # Losses
//
// A rank is lost when its link ends without a goodbye, when nothing has arrived from it for the heartbeat
// limit, when it sends an invalid frame, or when a rank declares it lost (Declare). The first rank to
// notice sends all others a notice, and closes its own link with the lost rank after it has taken in what
// had arrived. A loss ends the communicators that have not acknowledged it. A link that has carried
// nothing for a quarter of the limit carries a heartbeat. A goroutine sends it, so a rank may compute for
// any time.
//
// Where ranks have no link, the lowest rank, the hub, forwards the notices that all ranks need (hub.go). A
// rank is lost for one that has asked it for a link and had no answer for the limit.
//
// Two ranks that are alive and lose their link declare each other lost. The other ranks believe the notice
// that arrives first; if both arrive, both ranks are lost. If a network splits in two, each part goes on
// without the other if its program does.
//
// # Trust
//
// The other ranks may have bugs. Every length, token, and rank of a frame is checked. A rank that sends an
// invalid frame is lost, with an error that says so.
package engine
