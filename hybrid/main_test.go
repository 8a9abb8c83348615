package hybrid

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// TestMain makes the process a rank if it was started as one. Otherwise it fails if the tests leave goroutines
// or a pool behind.
func TestMain(m *testing.M) {
	if what := os.Getenv(asRank); what != "" {
		os.Exit(rankMain(what))
	}
	processors := runtime.GOMAXPROCS(0)
	code := leak.Run(m)
	if n := runtime.GOMAXPROCS(0); code == 0 && n != processors {
		fmt.Fprintf(os.Stderr, "Go has %d processors after the tests, %d before: a pool is open\n", n, processors)
		code = 1
	}
	os.Exit(code)
}
