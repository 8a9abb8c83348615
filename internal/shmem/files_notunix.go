//go:build !unix

package shmem

// Files returns nil: the number of files that can be opened is not known here.
func Files(int, string) error { return nil }
