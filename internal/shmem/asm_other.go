//go:build !amd64

package shmem

// Pause hints to the core that the caller is spinning, on processors that have such a hint.
func Pause() {}

// Own asks the core for the cache line of *p, because the caller will write to it, on processors where that is
// measured to help.
func Own(*uint32) {}

// OwnAll is Own for the lines in which b lies.
func OwnAll(b []byte) {}

// Demote moves lines to the cache that cores share, on processors where that is measured to help.
func Demote(b []byte) {}

// Fetch asks the core for the cache line of *p, because the caller will read it, on processors where that is measured to
// help.
func Fetch(*uint32) {}
