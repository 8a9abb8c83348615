//go:build unix

package flight

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile makes a file of data and returns its memory. All of it is written first, so that a file
// system without room is an error here and no fault later.
func mapFile(path string, data []byte) (mem []byte, err error) {
	err = create(path, data, func(f *os.File) (err error) {
		mem, err = unix.Mmap(int(f.Fd()), 0, len(data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	if err != nil && mem != nil {
		unmap(mem)
	}
	return mem, err
}

func unmap(mem []byte) { _ = unix.Munmap(mem) }
