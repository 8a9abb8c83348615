// Package shmem provides memory shared between processes and what its users need:
// sealed anonymous segments, typed views of them, futexes, copies from one
// process to another, and a watch for the end of other processes.
package shmem
