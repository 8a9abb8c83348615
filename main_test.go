package cohort

import (
	"bytes"
	"context"
	"errors"
	cmdline "flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain fails if the tests leave goroutines behind.
func TestMain(m *testing.M) {
	// The goroutine that os/signal has once somebody wants a signal stays for good.
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	signal.Stop(c)
	before := runtime.NumGoroutine()
	code := m.Run()
	if f := cmdline.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		os.Exit(code) // the fuzzing engine keeps goroutines of its own
	}
	// Goroutines that have been told to end may need a moment.
	for end := time.Now().Add(10 * time.Second); code == 0 && runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			var b bytes.Buffer
			pprof.Lookup("goroutine").WriteTo(&b, 1)
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s", &b)
			code = 1
		}
	}
	os.Exit(code)
}

// ranks runs body as n ranks and fails the test with their errors.
func ranks(t *testing.T, n int, body func(w *Comm) error) {
	t.Helper()
	if err := Run(context.Background(), n, body); err != nil {
		t.Fatal(err)
	}
}

// wants returns an error unless err wraps all of the sentinels.
func wants(what string, err error, sentinels ...error) error {
	for _, s := range sentinels {
		if !errors.Is(err, s) {
			return fmt.Errorf("%s: got %v, want %v", what, err, s)
		}
	}
	return nil
}

// isOp returns an error unless err is an OpError of the operation.
func isOp(err error, op string) error {
	var o *OpError
	if !errors.As(err, &o) {
		return fmt.Errorf("%v is no OpError", err)
	}
	if o.Op != op {
		return fmt.Errorf("the operation is %q, want %q", o.Op, op)
	}
	return nil
}

var racing bool // set by race_test.go
