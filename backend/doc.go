// Package backend is the service provider interface below the typed API, as
// database/sql/driver is below database/sql. A transport implements it to carry
// cohort programs.
//
// Everything here is type-erased: buffers are bytes, element types are a
// [Datatype], reductions an [Op]. The one required type is [Comm], one rank's
// end of one communicator. It has point-to-point operations and a way to wait.
// Every collective that a backend does not implement runs as a schedule of
// package coll over these operations.
//
// A Comm may implement more:
//
//   - [Native]: blocking collectives. A Native that does not compare the ranks'
//     calls itself also implements [Planner].
//   - [Starter]: nonblocking and persistent collectives.
//   - [Sharer]: memory that ranks of one node share.
//   - [Recovery]: going on after ranks have failed.
//   - [Exchanger], [Flusher], [Announcer], [Diagnoser], [Hoster]: smaller extras.
//
// The layer above finds out what a Comm implements when it makes the
// communicator. Package cohorttest has the conformance suite.
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
