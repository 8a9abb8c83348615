//go:build !unix

package shmem

// Files answers nil: here nobody knows how many files can be opened.
func Files(int, string) error { return nil }
