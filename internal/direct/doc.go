// Package direct does blocking collectives by reading the other ranks' buffers
// where they are: for backends whose ranks share memory.
//
// A backend lets all ranks post their calls and meet, and makes sure that the
// calls are the same one. Then every rank runs [Run], which computes the rank's
// own part of the result from the other ranks' inputs and lets them meet again
// before it returns: until then others may be reading this rank's buffers. If
// the inputs are short enough to be copied where the calls are posted
// ([Posted]), [RunPosted] reads the copies and nobody has to meet again.
//
// Reductions use the order of package coll ([coll.Order]), so that results have
// the same bits as those of its schedules.
//
// # Who writes what
//
// A rank writes its own buffers only, and in place only where no other rank
// reads any more: in a large Allreduce each rank reads one chunk of all vectors
// and writes that chunk of its own, and takes the others' chunks after a meeting
// into parts that nobody else reads.
package direct
