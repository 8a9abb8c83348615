// Package sched runs collective schedules (package coll) over a backend's
// point-to-point messages.
//
// A running collective, an [Op], is a state machine. It needs no goroutine: each message
// that completes may advance it, in the goroutine that completed the message. Several
// may be under way on one communicator.
//
// # Check
//
// Unless the caller knows that all ranks make the same call, the ranks exchange
// fingerprints of their calls while the data move. The pattern of this exchange
// (dissemination) depends only on the number of ranks and on which of them share a node,
// so it ends whatever the ranks called. Afterwards every rank knows of any difference. An
// operation is complete only when its check is. A difference breaks the communicator,
// which ends the data phase. In Gatherv, Scatterv and Alltoallv only two ranks know the
// length of a message. These operations end with a second exchange, which gives every
// rank the first length that was wrong.
package sched
