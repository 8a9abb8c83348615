// Package node joins the ranks of a job that run on one node: they meet at a socket, and share one segment
// of memory.
//
// The lowest rank of the node creates the segment and passes it to the others over an abstract socket, on
// which both sides check the other's user (join_linux.go). The segment holds rings for every two ranks
// (internal/memlink) and the arrival slots of collectives (internal/board). Its file is sparse: memory that
// is rarely needed is allocated on first use.
package node
