// Package coll holds the collective algorithms as pure schedules: what each
// rank sends, receives, copies and reduces, in which round, without I/O,
// goroutines or clocks. Whoever has point-to-point messages can run them.
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
package coll
