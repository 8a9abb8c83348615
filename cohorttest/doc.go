// Package cohorttest is the conformance suite that every backend passes. It is to
// backends what nettest is to connections and fstest to file systems.
//
// A backend's test is one call:
//
//	func TestConformance(t *testing.T) {
//		cohorttest.Test(t, cohorttest.Processes{Backend: "shm"})
//	}
//
// [Processes] starts every rank as a process that runs the same test binary with
// the same test. In such a process Test acts as the rank and then exits, so a
// backend whose ranks are processes needs nothing else.
//
// [Test] starts jobs through a [Launcher] and runs the scenarios in them, one after
// the other: every collective in its three forms, messages in every order that MPI
// allows, requests, communicators, windows, wrong arguments, mismatched calls,
// deadlines, failures. A scenario that ends a job, for example because a rank is
// killed, gets a job to itself.
//
// Everything is checked from outside, through the public API only. Buffers stand
// between guard elements, and all of them are compared. Expected values come from
// the definition of the operation in MPI-4.1 and share no code with the library. No
// scenario skips itself. A launcher declares what its backend cannot do, with the
// reason ([Skipper]), and the skip shows in the test's output.
//
// # The matrix, and the sample with -short
//
// A collective is called for all combinations of
//
//   - the number of ranks: 1, 2, 3, 4, 5, 7 and 8, or those of the launcher
//     ([Sizer]);
//   - the length: 0, 1, 3, 64, 1000 elements, and about 70000 for two of the types;
//   - the element type: numbers, a struct, an array of odd size;
//   - the root: every rank, for up to 64 elements;
//   - the buffers: apart, and in place (another scenario has calls in place on some ranks only);
//   - the form: blocking, nonblocking, persistent.
//
// With -short the matrix is sampled. The rows of the sample are chosen so that every
// pair of values of two axes occurs for every operation: each length with each type,
// each type in place, each form with each root (the first rank, the middle one, the
// last), and so on. The number of ranks, 1, 2, 3 or 5, or one of those of the
// launcher, is one of the axes. So every
// value of every other axis also occurs with each number of ranks. The rows are the
// same in every run. Other scenarios make fewer rounds with -short. Those that
// need a job to themselves run with one number of ranks each, in turn, and so do some
// that take long and show the same with every number of ranks.
//
// The matrix is sampled too from 7 ranks on, where a launcher asks for it ([Sizer]), and under the race detector, where
// the jobs have 2 and 3 ranks.
//
// # Other tests
//
// [Faults] starts jobs that do random operations, in which a random rank dies or
// stops at a random one, and checks what the others get.
//
// [Bits] returns a digest of the results of reductions whose rounding depends on the
// order of operands, to compare two backends bit for bit.
//
// [Some] runs chosen scenarios with one number of ranks.
package cohorttest
