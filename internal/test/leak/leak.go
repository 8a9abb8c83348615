// Package leak finds goroutines and descriptors that tests leave behind.
package leak

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// Run runs the tests of a package and returns the status for os.Exit. If the tests pass and leave goroutines
// behind, it prints their stacks and returns 1.
func Run(m *testing.M) int {
	// os/signal keeps a goroutine after its first use.
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	signal.Stop(c)
	before := runtime.NumGoroutine()
	code := m.Run()
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		return code // the fuzzing engine keeps its goroutines
	}
	if code == 0 {
		if err := Above("goroutines", runtime.NumGoroutine, before); err != nil {
			fmt.Fprintln(os.Stderr, err)
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
		}
	}
	return code
}

// Files returns how many descriptors this process has open; 0 where the system does not report them.
func Files() int {
	if r, w, err := os.Pipe(); err == nil { // makes the runtime open those with which it polls files, which it keeps
		r.Close()
		w.Close()
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// Above returns an error if a count stays above what it was before. It waits up to a minute: a goroutine that was
// told to end has to come to it, and another one may have a file open for a moment.
func Above(what string, count func() int, before int) error {
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		n := count()
		if n <= before {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d %s are left, %d were there before", n, what, before)
		}
	}
}
