//go:build !unix

package soft

// Without mmap, memory is Go's, and accesses to device memory by the host are not detected.

func mapped(n int) ([]byte, error)   { return make([]byte, n), nil }
func reserved(n int) ([]byte, error) { return make([]byte, n), nil }
func unmap([]byte) error             { return nil }
