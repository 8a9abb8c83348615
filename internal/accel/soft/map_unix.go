//go:build unix

package soft

import "golang.org/x/sys/unix"

// mapped returns n bytes outside of Go's heap, zero.
func mapped(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// reserved returns n bytes of address space, at which there is no memory: to touch one is a fault.
func reserved(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// unmap gives back what one of them returned.
func unmap(b []byte) error { return unix.Munmap(b) }
