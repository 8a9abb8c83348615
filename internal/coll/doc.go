// Package coll has the algorithms of the collectives as pure schedules: what each rank
// sends, receives, copies and reduces in each round. It has no I/O, goroutines or clocks.
// A schedule runs over any point-to-point messages.
//
// [Build] turns a rank's call into its [Schedule], by the algorithm that costs least;
// [BuildAs] by any of its [Algorithms]. [Order] is the order in which a reduction combines
// its operands. It can be evaluated for backends that read the ranks' buffers without
// messages.
//
// Every algorithm names its source. docs/algorithms.md has the steps and bytes of each,
// and the tests check them on an in-memory executor.
//
// # Order of reductions
//
// A reduction combines its operands in one order ([Order]), which depends only on the
// number of ranks, the length and whether the operation commutes. It is the same for
// every algorithm and every root, so results are equal bit for bit between backends and
// runs.
//
// # Buffers
//
// A schedule reads Send and never writes it. It writes only the collective's result to
// Recv; in place, the rest of Recv stays unchanged. Temp keeps nothing between runs: what
// a run reads from Temp it has written before.
//
// # Deadlock
//
// No schedule relies on buffering: all ranks' schedules also end if every send waits for
// its receive.
package coll
