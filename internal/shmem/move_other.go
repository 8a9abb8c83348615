//go:build !amd64

package shmem

// Move copies src to dst, which do not overlap and have one length.
func Move(dst, src []byte) { copy(dst, src) }
