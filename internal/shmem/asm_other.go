//go:build !amd64

package shmem

// Pause hints to the core that the caller is spinning, on processors that have such a hint.
func Pause() {}

// Move copies src to dst, which do not overlap and have one length.
func Move(dst, src []byte) { copy(dst, src) }
