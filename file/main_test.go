package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain fails if the tests leave files open.
func TestMain(m *testing.M) {
	before := descriptors()
	code := m.Run()
	if after := descriptors(); code == 0 && after > before {
		fmt.Fprintf(os.Stderr, "%d files left open\n", after-before)
		code = 1
	}
	os.Exit(code)
}

// descriptors returns how many files in folders of tests this process has open, or 0 where the system does not say.
func descriptors() (n int) {
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if to, _ := os.Readlink(fd); strings.Contains(to, "/Test") {
			n++
		}
	}
	return n
}
