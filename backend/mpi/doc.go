// Package mpi is the backend whose ranks are MPI processes, over whatever MPI
// library is found at run time (package libmpi).
//
// # Two communicators
//
// Every communicator has two of MPI's: data carries what the user sends and the
// library's own collectives, ctl everything with a tag below 0: fingerprints,
// schedules, reports, and notices that a communicator is broken. The user's tags
// are MPI's; tags below 0 are folded into MPI's range (ctlTag).
//
// # Three ways a blocking collective runs
//
// By itself a call is the library's function and nothing else. In agreed mode,
// which all ranks are in if any was asked to check or can end operations early,
// the ranks exchange fingerprints first (package sched), so that a mismatch is
// found and a missing rank is named before the library is entered. Where the
// library's collective cannot be used (an order of reductions that is to be
// fixed, counts it cannot take, receives it does not guard) the call is a
// schedule over point-to-point messages.
//
// # Progress
//
// One engine for the process holds all requests under way. Whoever waits tests
// them, one at a time, and completes what is complete, others' too. It starts
// with short tries, then gives its processor away, then sleeps, up to a
// millisecond. Blocking calls without a limit do not come here: they are the
// library's own blocking calls.
//
// # Receives that are guarded
//
// Some libraries write past the end of a receive buffer when the message is
// longer (quirkOverrun). With them a receive never posts the user's buffer
// before the message's length is known: it waits in a queue of the
// communicator's, in the order of posting, and is matched by MPI_Improbe.
package mpi
