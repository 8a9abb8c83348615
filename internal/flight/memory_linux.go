package flight

import "golang.org/x/sys/unix"

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
