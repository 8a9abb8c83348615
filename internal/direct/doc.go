// Package direct runs blocking collectives by reading the other ranks' buffers in place, for
// backends whose ranks share memory.
//
// A backend waits until all ranks have arrived at the call, and checks that their calls match. Then
// every rank runs [Run]. It computes the rank's own part of the result from the other ranks' inputs,
// and synchronizes with them before it returns, because until then other ranks may be reading this
// rank's buffers. If the inputs are short enough to be copied into the arrival slots ([FitsSlot]), the
// ranks read the copies, and need not synchronize again.
//
// Reductions use the order of package coll ([coll.Order]), so that results have the same bits as
// those of its schedules.
//
// # Ownership
//
// A rank writes its own buffers only, and in place only where no other rank reads any more. In a
// large Allreduce, each rank combines one chunk of all vectors and writes that chunk of its own. After
// a synchronization it copies the chunks that the other ranks have combined.
package direct
