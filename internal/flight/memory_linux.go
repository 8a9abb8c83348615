package flight

import (
	"os"

	"golang.org/x/sys/unix"
)

// inMemory reports whether a folder is in memory. The kernel writes a file that is mapped from a disk
// back from time to time, and a rank that touches the memory meanwhile has to wait.
func inMemory(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	switch uint32(st.Type) { // signed, and 32 bits wide, on 32-bit systems
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return true
	}
	return false
}

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
