//go:build !unix

package soft

// Without mmap, accesses to device memory by the host are not detected.

func reserved(n int) ([]byte, error) { return make([]byte, n), nil }
func unmap([]byte) error             { return nil }
