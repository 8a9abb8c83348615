package meet

import (
	"os"

	"golang.org/x/sys/unix"
)

// mounted reports whether a file is on a memory file system that is mounted read-only, as the secrets are that
// Kubernetes mounts into a container. Their mode is not the user's to choose: a user other than root can read them
// because a group or all may. If such a file belongs to root, root has put it where this process sees it, for only root
// can mount. It cannot be changed through this mount, and its other readers are processes of the same container.
func mounted(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type == unix.TMPFS_MAGIC && fs.Flags&unix.ST_RDONLY != 0
}
