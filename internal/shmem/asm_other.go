//go:build !amd64

package shmem

// Pause hints to the core that the caller is spinning, on processors that have such a hint.
func Pause() {}
