// Package shm is the backend for ranks that are processes of one node. They
// share one sealed anonymous memory segment that rank 0 makes and hands to the
// others over an abstract socket, which checks the user on both sides.
//
// # Messages
//
// Every ordered pair of ranks has a ring of 64-byte cells and a data ring. A
// message up to 44 bytes is one cell, so one cache line changes hands; up to
// eagerMax bytes the payload stands in the data ring. Longer messages are
// offered: the receiver reads them straight out of the sender's memory, and a
// sender that waits helps by writing the other chunks (process_vm_readv and
// process_vm_writev). Where the kernel forbids that, they are pipelined through
// the data ring.
//
// # Collectives
//
// Every rank has a small slot per communicator, its board. A blocking
// collective posts its fingerprint there, with the data if they are few, waits
// until every other rank has posted, and compares. Larger ones read each
// other's memory directly, or run as a schedule over messages.
//
// # Waiting
//
// A waiting rank spins for a bounded time, only if the ranks have a core each;
// otherwise it yields the core. Then it sleeps on a futex that whoever has news
// for it rings.
//
// # Losses
//
// That a rank is lost stands in its part of the control area, and ends the
// communicators that do not excuse it. The others' watch sees a process that has
// ended; one that is stopped is found by its heartbeat, a counter that each rank
// raises ten times in the time that silence may last. The comment in loss.go goes
// through what a lost rank leaves behind in each shared structure.
//
// A rank that was taken for lost and moves again finds that out, and harms nobody:
// but for one that was stopped between claiming a part of another's buffer and
// writing it, which is ended (SIGKILL), because nothing else would keep it from
// writing there later.
//
// # Trust
//
// The other ranks are processes of the same user, but may be wrong. What is
// read from the segment is copied and checked before it is used as an index or
// length; a value out of range ends the job with ErrInternal.
package shm
