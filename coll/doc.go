// Package coll holds the collective algorithms as pure schedules: what each
// rank sends, receives, copies and reduces, in which round, without I/O,
// goroutines or clocks. Whoever has point-to-point messages can run them.
//
// [Build] turns a rank's call into its [Schedule]; [Order] says in which order a
// reduction combines its operands, and evaluates it for backends that read the
// ranks' buffers without messages.
//
// Every algorithm names its paper, and docs/algorithms.md gives its rounds and
// bytes, which the tests check on an in-memory executor.
//
// # Order of reductions
//
// A reduction combines its operands in one order that depends only on the
// number of ranks, the length and whether the operation commutes ([Order]), the
// same for every algorithm and every root, so that results are bit-for-bit
// equal between backends and runs.
//
// # Buffers
//
// A schedule reads Send and never writes it. It writes of Recv only what the
// collective's result is; in place, the rest of Recv is left as it was. Temp
// holds nothing from one run to the next: what is read has been written before
// in the same run.
//
// # Deadlock
//
// No schedule relies on messages being buffered: all ranks' schedules end also
// if every send waits for its receive.
package coll
