// Package board makes blocking collectives of ranks that share memory without messages.
//
// Every rank has arrival slots for each communicator. A rank arrives at a collective: it writes its
// fingerprint into its slot, with the data if they are few, waits until every other rank has arrived, and
// compares. Longer data go over messages, as a schedule, or are read from the other ranks' memory. Where every
// rank has a processor, rank 0 measures now and then which is faster (way.go).
package board
