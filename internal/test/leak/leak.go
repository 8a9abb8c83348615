// Package leak finds goroutines that the tests of a package leave behind.
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
	// Goroutines that are about to end may need a moment.
	for end := time.Now().Add(time.Minute); code == 0 && runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "goroutines left behind:")
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
		}
	}
	return code
}
