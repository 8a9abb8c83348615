//go:build !unix

package soft

// Where there is no mmap, memory is Go's, and what the host does with a device's address is not found.

func mapped(n int) ([]byte, error)   { return make([]byte, n), nil }
func reserved(n int) ([]byte, error) { return make([]byte, n), nil }
func unmap([]byte) error             { return nil }
