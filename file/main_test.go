package file

import (
	"fmt"
	"os"
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

// descriptors returns how many files this process has open, or 0 where the system does not say.
func descriptors() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}
