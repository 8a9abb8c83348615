// Package shmem provides memory shared between processes and what its users need:
// sealed anonymous segments, typed views of them, futexes, copies from one
// process to another, a watch for the end of other processes, and system calls that
// the scheduler of Go is not told of.
package shmem
