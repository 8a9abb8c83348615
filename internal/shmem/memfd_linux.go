package shmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// memfd makes memory without a name in the file system, of which nothing can be executed. Where the
// system is set to have no other (vm.memfd_noexec=2), kernels 6.3 to 6.5 want to be asked for that;
// those before do not know the flag.
func memfd(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	return fd, nil
}
