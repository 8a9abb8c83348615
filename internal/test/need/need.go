// Package need is for tests of what a machine may lack: a program, a library, a right. Such a test is
// skipped and says what is missing. Where COHORT_REQUIRE_TOOLS=1 says that the set-up has installed
// everything, as scripts/check does, it fails instead, so that nothing goes untested unseen.
package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Required reports whether nothing may be missing.
func Required() bool { return os.Getenv("COHORT_REQUIRE_TOOLS") == "1" }

// Missing ends a test that cannot be done on this machine, with a text that says what it lacks: it is
// skipped, or fails if nothing may be missing.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if Required() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// MissingRight is Missing for what root may do: for other users the test is always skipped.
func MissingRight(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf(format, args...)
	}
	Missing(t, format, args...)
}

// Program returns the path of a program, which may be a daemon: those are where not everybody looks.
// Without it the test ends as Missing says.
func Program(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	Missing(t, "needs %s; scripts/setup installs what tests need", name)
	return ""
}

// Executable reports whether a file exists that can be run.
func Executable(file string) bool {
	_, err := exec.LookPath(file)
	return err == nil && filepath.IsAbs(file)
}
