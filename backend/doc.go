// Package backend is what a transport implements to carry cohort programs: the
// service provider interface below the typed API, as database/sql/driver is
// below database/sql.
//
// Everything here is type-erased: buffers are bytes, element types are a
// [Datatype], reductions an [Op]. A backend's one required type is [Comm], one
// rank's end of one communicator, with point-to-point operations and a way to
// wait. A backend that can do a blocking collective itself also implements
// [Native], and [Planner] where it leaves it to the layer above to find out
// whether the ranks make the same call; one that can do nonblocking or
// persistent collectives itself implements [Starter]. Every collective it does
// not do natively runs as a schedule of package coll over its point-to-point.
//
// # Ranks, tags and contexts
//
// Ranks are those of the communicator. User tags are 0 to [MaxTag]; negative
// tags belong to the layers above the backend (collective schedules), and
// [AnyTag] matches user tags only. Messages of different communicators never
// match, and between two ranks messages of one communicator and tag are
// received in the order sent.
//
// # Buffers
//
// A backend may read a send buffer and write a receive buffer from the start of
// an operation until its completion, and not afterwards. It never writes
// outside the slice it was given: a longer message is ErrTruncate, and the rest
// of it is dropped.
//
// # Failures
//
// A lost rank ends every pending and later operation of the job with
// ErrPeerLost. A rank that left in good order (Close) ends only the operations
// that need it. A broken communicator ([Comm.Break]) ends its own operations on
// every rank.
package backend
