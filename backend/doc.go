// Package backend is the service provider interface below the typed API, as
// database/sql/driver is below database/sql. A backend implements it to carry
// cohort programs.
//
// # What to implement
//
// An [Opener] joins a job and returns its first communicator. cohort.Register makes
// it known under a name, which COHORT_BACKEND or Config.Backend select. The example
// of cohort.Register is a backend of one page, and package cohorttest has the
// conformance suite:
//
//	func TestConformance(t *testing.T) { cohorttest.Test(t, cohorttest.Processes{Backend: "mine"}) }
//
// Everything here is type-erased: buffers are bytes, element types are a
// [Datatype], reductions an [Op].
//
// Required is [Comm], one rank's end of one communicator. Most of its methods are
// what messages need: who is in the communicator, sends, receives and probes, a way
// to wait, and communicators derived from it. It ends in four ways: Break, Declare,
// Abort and Close. The others serve reports and tidying. Of these, HostOf may
// return "", Diagnostics nil, and Settled may do nothing. Without OnWait the flight
// recorder does not know for how long operations have waited, and without UnderWay
// Close does not report those for which the program has not waited.
//
// A communicator that can do more implements up to four more interfaces. The
// layer above looks for them once, when it makes the communicator.
//
//   - [Collectives]: collectives of the backend's own, and a faster exchange of two
//     short messages. Without it every collective is a schedule of package coll over
//     messages, with the same results.
//   - [Sharing]: memory that ranks of one node share. Without it AllocateShared is
//     ErrNotSupported, every rank has a SharedRegion to itself, and one-sided
//     accesses are messages.
//   - [Recovery]: going on after ranks have failed. Without it Agree, Shrink and
//     Revoke are ErrNotSupported.
//   - [Devices]: buffers in the memory of devices. Without it package tensor copies
//     them through the memory of the host.
//
// Three small interfaces refine these. A Comm that must ask the receiver of a
// canceled send is a [Withdrawer], so that an answer that does not come breaks no
// communicator. The layer above looks for it in the same way. With a
// [FailureReporter] the launcher learns of ranks that are lost, but not of those
// that left in good order. A [Spinner] makes short waits faster. The layer above
// looks for these two where it uses them.
//
// A method of these that cannot do what it is asked returns ErrNotSupported with the
// reason. A backend that wraps another one wraps the results of Derive and Shrink
// too.
//
// # Ranks, tags and contexts
//
// Ranks are those of the communicator. User tags are 0 to [MaxTag]. Negative
// tags belong to the layers above the backend (collective schedules), and
// [AnyTag] matches user tags only. Messages of different communicators never
// match. Between two ranks, messages of one communicator and tag are received in
// the order sent.
//
// # Buffers
//
// A backend may read a send buffer and write a receive buffer from the start of
// an operation until its completion, and not afterwards. It never writes outside
// the slice it was given. A message longer than the buffer is ErrTruncate, and
// the rest of the message is dropped.
//
// # Failures
//
// A lost rank ends every pending and later operation of the job with
// ErrPeerLost. A rank that left in good order (Close) ends only the operations
// that need it. A broken communicator ([Comm.Break]) ends its own operations on
// every rank.
package backend
