//go:build unix

package meet

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSecretFileOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := NewSecret().WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, mode := range []os.FileMode{0o601, 0o604, 0o610, 0o640, 0o644, 0o666, 0o700} {
		path := file(fmt.Sprintf("%o", mode), mode)
		_, err := ReadSecretFile(path)
		has(t, err, nil, path, fmt.Sprintf("mode %#o", mode), "chmod 600")
	}
	if _, err := ReadSecretFile(file("only read", 0o400)); err != nil {
		t.Errorf("mode 0400: %v", err)
	}
	_, err := ReadSecretFile(filepath.Join(dir, "none"))
	has(t, err, os.ErrNotExist, "none")
	_, err = ReadSecretFile(dir)
	has(t, err, nil, "not a regular file")
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ReadSecretFile(pipe) // would wait for a writer
	has(t, err, nil, "not a regular file")
	if os.Geteuid() != 0 {
		t.Skip("another owner: it takes root to make such a file")
	}
	other := file("other", 0o600)
	if err := os.Chown(other, 12345, -1); err != nil {
		t.Fatal(err)
	}
	_, err = ReadSecretFile(other)
	has(t, err, nil, other, "belongs to user 12345", "runs as 0")
}
