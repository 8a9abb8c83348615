// Package cohorttest is the conformance suite that every backend passes, as
// nettest is for connections and fstest for file systems.
//
// A backend's test is one call:
//
//	func TestConformance(t *testing.T) {
//		cohorttest.Test(t, cohorttest.Processes{Backend: "shm"})
//	}
//
// That is all a backend whose ranks are processes needs too: they are the test's
// binary again, which does a rank's part when it comes to the call.
//
// [Test] starts jobs of 1, 2, 3, 4, 5, 7 and 8 ranks, and of as many as the
// launcher adds ([More]), through a [Launcher], and in each runs the scenarios,
// one after the other: every collective in its three forms against an oracle that
// shares no code with the library, messages in every order MPI allows, requests,
// communicators, wrong arguments, mismatched calls, deadlines. Scenarios that end
// a job, such as a rank that is killed, get a job of their own. With -short the
// matrix is smaller and the jobs are of 1, 2, 3 and 5 ranks; under the race
// detector it is smaller too, and they are of 2 and 3.
//
// Everything is checked from outside, through the public API only. Buffers
// stand between guard elements, and the whole of them is compared; expected
// values come from the definition of the operation in MPI-4.1. A scenario never
// skips itself: what a backend cannot do its launcher declares ([Skipper]), with
// the reason, and the skip shows in the test's output.
//
// [Faults] starts jobs that do random operations, in which a random rank dies or
// stands still at a random one, and checks what the others get.
//
// [Bits] returns a digest of the results of reductions whose rounding depends
// on the order of operands, to compare two backends bit for bit.
package cohorttest
