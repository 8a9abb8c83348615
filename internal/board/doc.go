// Package board runs the blocking, and the short nonblocking and persistent collectives of ranks that share
// memory, without messages.
//
// Every rank has arrival slots for each communicator. To arrive at a collective, a rank writes the
// fingerprint of its call into its slot, and short data too. It waits for the ranks whose data it needs, and
// compares their fingerprints with its own; those of the other ranks it compares later. Longer data, up to 32 KiB
// with up to 4 ranks and less with more, go into an area of shared memory that belongs to the slots. Still longer
// data go over messages, as a schedule, or are read from the other ranks' memory. Where every rank has a
// processor, rank 0 measures now and then which is faster (way.go).
package board
