//go:build (amd64 || arm64) && !cohort_noclp

package clp

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ebitengine/purego"
)

// resident returns the resident memory of this process in bytes.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// flush writes out what C has buffered of its output.
func flush(t *testing.T) {
	t.Helper()
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	var fflush func(file uintptr) int32
	purego.RegisterLibFunc(&fflush, libc, "fflush")
	fflush(0)
}
