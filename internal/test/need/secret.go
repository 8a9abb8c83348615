//go:build linux && (amd64 || arm64)

package need

import "golang.org/x/sys/unix"

// SecretMemory returns memory that the kernel does not copy from process to process. The error is
// ErrUnsupported if there is none here.
func SecretMemory(n int) ([]byte, error) {
	fd, err := unix.MemfdSecret(0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
