package hybrid

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain makes the process a rank if it was started as one, and else fails if the
// tests leave goroutines behind.
func TestMain(m *testing.M) {
	if what := os.Getenv(asRank); what != "" {
		os.Exit(rankMain(what))
	}
	before, processors := runtime.NumGoroutine(), runtime.GOMAXPROCS(0)
	code := m.Run()
	// Goroutines that are ending may need a moment.
	for end := time.Now().Add(10 * time.Second); code == 0 && runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			var b bytes.Buffer
			pprof.Lookup("goroutine").WriteTo(&b, 1)
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s", &b)
			code = 1
		}
	}
	if n := runtime.GOMAXPROCS(0); code == 0 && n != processors {
		fmt.Fprintf(os.Stderr, "Go has %d processors after the tests, %d before: a pool is open\n", n, processors)
		code = 1
	}
	os.Exit(code)
}
