// Package clp solves linear programs with COIN-OR Clp, whose library it loads at run time.
//
// It calls the C interface of libClp.so.1 (Debian: coinor-libclp1) without cgo. Every solve has a
// model of its own, made and deleted within the call: no memory of the library outlives a solve,
// and nothing that it keeps for the next one can get into an answer.
package clp
