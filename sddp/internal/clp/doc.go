// Package clp solves linear programs with COIN-OR Clp, a library that it loads at run time.
//
// It calls the C interface of libClp.so.1 (Debian: coinor-libclp1) without cgo. Every solve creates and
// deletes a model, so no memory of the library outlives a solve and no earlier solve influences an
// answer.
package clp
