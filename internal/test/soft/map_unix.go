//go:build unix

package soft

import "golang.org/x/sys/unix"

// reserved returns n bytes of address space without memory: accessing them faults.
func reserved(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// unmap frees the result of reserved.
func unmap(b []byte) error { return unix.Munmap(b) }
