//go:build !amd64

package shmem

// Pause tells the core that the caller is spinning, where there is a way to.
func Pause() {}
