// Package mpi is the backend whose ranks are MPI processes. It uses the MPI library that is found at
// run time (package libmpi).
//
// # Two communicators
//
// Every communicator has two MPI communicators. data carries the user's messages and the library's
// collectives. ctl carries everything with a tag below 0: fingerprints, schedules, reports, and
// notices that a communicator is broken. User tags are MPI tags; tags below 0 are folded into MPI's
// range (type tags).
//
// # Three ways to run a blocking collective
//
// By default a call is the library's function and nothing else.
//
// In agreed mode the ranks exchange fingerprints first (package sched), so that a mismatch is
// detected, and a missing rank named, before the library is entered. All ranks are in agreed mode if
// any rank asked for checks or can end operations early.
//
// A call is a schedule over point-to-point messages where the library's collective cannot be used:
// if the order of a reduction is fixed, if the library does not take the counts, or if it does not
// guard its receives.
//
// # Progress
//
// One engine in the process holds all requests in progress. A goroutine that waits tests them all,
// one goroutine at a time, and completes those that are complete. It first tries in short intervals,
// then yields the processor, then sleeps for up to a millisecond. Blocking calls without a limit do
// not use the engine: they are the library's blocking calls.
//
// # Guarded receives
//
// Some libraries write past the end of a receive buffer if the message is longer (mpiquirks.QuirkOverrun). With
// them a receive does not post the user's buffer before the message's length is known. It waits in a
// queue of the communicator, in the order of posting, and is matched by MPI_Improbe.
package mpi
