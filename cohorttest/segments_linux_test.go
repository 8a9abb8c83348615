package cohorttest

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Files that a library is known to leave are removed without a mark too, but not while a
// process has them open or mapped.
func TestUnusedSegmentsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s := segmentsIn(dir)
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, name := range []string{"known-left", "unknown-left"} {
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
	left, expected := s.left([]string{"mark"}, []string{"known-*"})
	if want := []string{"known-left"}; len(left) > 0 || !slices.Equal(expected, want) {
		t.Errorf("left are %q and expected %q, want none and %q", left, expected, want)
	}
	if got, want := fileNames(dir), []string{"known-mapped", "known-open", "unknown-left"}; !slices.Equal(got, want) {
		t.Errorf("now there are %q, want %q", got, want)
	}
	if err := syscall.Munmap(area); err != nil {
		t.Fatal(err)
	}
	if _, expected := s.left(nil, []string{"known-*"}); !slices.Contains(expected, "known-mapped") {
		t.Errorf("a file that is mapped no more is not among %q", expected)
	}
}
