// Package shmem is memory shared between processes and what it takes to use it:
// sealed anonymous segments, typed views of them, futexes, copies from one
// process to another, and a watch on the life of peers.
package shmem
