// Package tcp is the backend for ranks that are processes on any machines and communicate by TCP.
//
// The ranks meet at a coordinator (internal/meet), which gives each the addresses of the others. Each pair
// of ranks then has one connection, made at the start or when the pair first needs it (demand.go).
// internal/meet authenticates it. The descriptors are kept out of Go's network poller: otherwise every
// message would wake an idle thread of the runtime, which costs more than the message.
//
// Two kinds of links carry the frames of the engine (internal/engine): a connection, with or without TLS
// (link.go), and rings in the memory that the ranks of a node share (internal/node, near.go). The connection
// beside the rings shows that the peer has ended. The memory also has arrival slots, for collectives of ranks
// that are all on one node. If the ranks of a node cannot share memory, they use the connections, and
// Diagnostics says why.
//
// # Trust
//
// The other ranks have the job's secret, but may have bugs. A rank that sends an invalid frame is lost,
// with an error that says so.
package tcp
