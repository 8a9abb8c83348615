//go:build unix && !linux

package spawn

// putBack reports false: it is not implemented for this system.
func putBack(int, []byte) bool { return false }
