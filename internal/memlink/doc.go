// Package memlink is the link between two ranks of one node: frames travel through memory that the two
// processes share. The kernel copies long messages from one process to the other where that is faster.
//
// # Frames
//
// Each direction has a ring of 64-byte cells and a data ring. A frame with a payload of up to 44 bytes is
// one cell, so one cache line changes hands. A longer payload is cut into pieces in the data ring, each
// announced by its own cell: the receiver copies one piece out while the sender copies the next in.
//
// # Copies
//
// A transfer copies a long message directly. Both processes copy chunks that they claim one by one, the
// receiver by reading (process_vm_readv), the sender by writing (process_vm_writev): see transfer.go.
//
// # Which is faster
//
// Between two processors that share a cache, the rings are faster than the kernel's copies. Between
// others they are several times slower. Both ranks measure this, and the sender chooses: see pace.go.
//
// # Trust
//
// The other process belongs to the same user but may be faulty. A value read from shared memory is copied
// and checked before it is used as an index or a length.
package memlink
