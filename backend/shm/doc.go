// Package shm is the backend for ranks that are processes of one node. They share one sealed anonymous
// memory segment (internal/node).
//
// The segment holds a link for every two ranks (internal/memlink) and the arrival slots of collectives
// (internal/board); the engine (internal/engine) does the rest. A waiting rank polls for a bounded time,
// and then sleeps on a futex, which the rank that has news for it wakes. A watch of the other processes
// notices at once one that has ended.
package shm
