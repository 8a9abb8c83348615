// Package shm is the backend for ranks that are processes of one node. They share one sealed
// anonymous memory segment. Rank 0 creates it and passes it to the others over an abstract socket,
// on which both sides check the other's user.
//
// # Messages
//
// Every ordered pair of ranks has a ring of 64-byte cells and a data ring. A message of up to 44
// bytes is one cell, so one cache line changes hands. Up to eagerMax bytes, the payload is in the
// data ring. A longer message is a rendezvous: the sender announces it (ready to send, RTS), and the
// receiver reads it from the sender's memory (process_vm_readv). A sender that waits helps by
// writing other chunks (process_vm_writev). Where the kernel forbids that, the chunks go through the
// data ring.
//
// # Collectives
//
// Every rank has arrival slots for each communicator. In a blocking collective a rank arrives: it
// writes its fingerprint there, with the data if they are few, waits until every other rank has
// arrived, and compares. Larger collectives read the other ranks' memory directly, or run as a
// schedule over messages.
//
// # Waiting
//
// A waiting rank spins for a bounded time if every rank has a core; otherwise it yields the core.
// Then it sleeps on a futex, which the rank that has news for it wakes.
//
// # Losses
//
// The loss of a rank is recorded in its part of the control area and ends the communicators that
// have not acknowledged it. A watch of the other processes notices one that has ended. A heartbeat,
// a counter that each rank raises ten times in the time that silence may last, detects one that is
// stopped. The comment in loss.go describes what a lost rank leaves in each shared structure.
//
// A rank that was declared lost and runs again finds that out and does no harm, with one exception:
// if it was stopped between claiming a part of another rank's buffer and writing it, it is killed
// (SIGKILL), because nothing else keeps it from writing there later.
//
// # Trust
//
// The other ranks are processes of the same user but may be faulty. A value read from the segment is
// copied and checked before it is used as an index or length; one out of range ends the job with
// ErrInternal.
package shm
