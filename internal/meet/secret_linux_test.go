package meet

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMountedSecretIsAccepted mounts a memory file system as Kubernetes does for a Secret: the file is a symbolic link
// into a folder of root's, with the mode of a volume's default, and of one with fsGroup.
func TestMountedSecretIsAccepted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a mount: it takes root to make one")
	}
	dir := t.TempDir()
	read := func(name string) error {
		_, err := ReadSecretFile(filepath.Join(dir, name))
		return err
	}
	var denied error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never given back: the thread ends with its namespace
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("none", dir, "tmpfs", 0, ""))
		if errors.Is(err, unix.EPERM) {
			denied = err
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		for name, mode := range map[string]os.FileMode{"all": 0o644, "group": 0o440, "root": 0o400, "writable": 0o664, "other": 0o644} {
			path := filepath.Join(dir, "..data."+name)
			err := errors.Join(NewSecret().WriteFile(path), os.Chmod(path, mode), os.Symlink("..data."+name, filepath.Join(dir, name)))
			if err != nil {
				t.Error(err)
			}
		}
		if err := os.Chown(filepath.Join(dir, "..data.other"), 12345, -1); err != nil {
			t.Error(err)
		}
		has(t, read("all"), nil, "has mode 0644") // the mount can be written to
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"all", "group", "root"} {
			if err := read(name); err != nil {
				t.Error(err)
			}
		}
		has(t, read("writable"), nil, "has mode 0664")
		has(t, read("other"), nil, "has mode 0644")
	}()
	if <-done; denied != nil {
		t.Skipf("a mount: %v", denied)
	}
}
