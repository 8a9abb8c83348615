package meet

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// TestMain fails if the tests leave goroutines or descriptors behind.
func TestMain(m *testing.M) {
	goroutines, files := runtime.NumGoroutine(), leak.Files()
	code := m.Run()
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		os.Exit(code) // a fuzzer has goroutines and pipes of its own
	}
	if err := errors.Join(leak.Above("descriptors", leak.Files, files), leak.Above("goroutines", runtime.NumGoroutine, goroutines)); err != nil {
		fmt.Println(err)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 1)
		code = 1
	}
	os.Exit(code)
}

// has fails unless an error wraps target (where there is one) and its text has all parts.
func has(t *testing.T, err, target error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("%q does not wrap %q", err, target)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

// reason fails unless an error is a refusal for a reason.
func reason(t *testing.T, err error, want Reason, parts ...string) {
	t.Helper()
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Reason != want {
		t.Errorf("got %v, want a refusal for %q", err, want)
		return
	}
	has(t, err, nil, parts...)
}
