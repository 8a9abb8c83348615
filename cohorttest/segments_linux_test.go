package cohorttest

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Files that a library is known to leave are removed, but not while a process has them open or mapped, and not those of
// before.
func TestUnusedSegmentsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, name := range []string{"known-left", "unknown-left", "known-before"} {
		create(name).Close()
	}
	defer create("known-open").Close()
	f := create("known-mapped")
	if err := f.Truncate(1); err != nil {
		t.Fatal(err)
	}
	area, err := syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	patterns := []string{"known-*"}
	removeUnused(dir, []string{"known-before"}, patterns)
	if got, want := fileNames(dir), []string{"known-before", "known-mapped", "known-open", "unknown-left"}; !slices.Equal(got, want) {
		t.Errorf("now there are %q, want %q", got, want)
	}
	if err := syscall.Munmap(area); err != nil {
		t.Fatal(err)
	}
	removeUnused(dir, nil, patterns)
	if slices.Contains(fileNames(dir), "known-mapped") {
		t.Error("a file that is mapped no more is still there")
	}
}
