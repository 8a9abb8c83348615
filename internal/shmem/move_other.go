//go:build !amd64 || race

package shmem

// Move is copy for buffers that do not overlap. The race detector sees what it reads and writes.
func Move(dst, src []byte) int { return copy(dst, src) }
