//go:build unix

package flight

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mapFile makes a file of data and returns its memory. All of it is written first, so that a file
// system without room is an error here and no fault later.
func mapFile(path string, data []byte) (mem []byte, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err = f.Write(data); err == nil {
		mem, err = unix.Mmap(int(f.Fd()), 0, len(data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		if err = os.Rename(f.Name(), path); err == nil {
			return mem, nil
		}
		unmap(mem)
	}
	os.Remove(f.Name())
	return nil, err
}

func unmap(mem []byte) { _ = unix.Munmap(mem) }
