package flight

import "golang.org/x/sys/unix"

// inMemory reports whether a folder is in memory. Elsewhere the kernel writes a mapped file to its
// disk from time to time, and who touches the memory meanwhile waits.
func inMemory(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC
}
