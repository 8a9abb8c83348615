// Package sched runs collective schedules (package coll) over a backend's
// point-to-point messages.
//
// A running collective, an [Op], is a state machine without a goroutine of its
// own: each message that completes may move it on, in whichever goroutine
// completed it, until it is done. Several may be under way on one communicator.
//
// # Check
//
// Unless the caller knows already that all ranks make the same call, the ranks
// exchange fingerprints while the data flows: a dissemination exchange whose
// pattern depends only on the number of ranks and on which of them are on one
// node, so that it ends whatever the ranks called. After it every rank knows of any difference. An operation is
// complete only when its check is, and a difference breaks the communicator,
// which ends the data phase. Gatherv, Scatterv and Alltoallv, whose lengths are
// known to pairs of ranks only, end with a second exchange that tells every rank
// the first length that was wrong.
package sched
