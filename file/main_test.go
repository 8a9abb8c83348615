package file

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// TestMain fails if the tests leave files open.
func TestMain(m *testing.M) {
	before := descriptors()
	code := m.Run()
	if err := leak.Above("open files", descriptors, before); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// descriptors returns how many files in folders of tests this process has open, or 0 where the system does not say. Files of
// ranks that failed before they closed them are closed by the garbage collector.
func descriptors() (n int) {
	runtime.GC()
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if to, _ := os.Readlink(fd); strings.Contains(to, "/Test") {
			n++
		}
	}
	return n
}
