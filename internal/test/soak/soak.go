package netlab

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// SoakRuns returns the first and the last run that a test makes, of a test with so many runs. COHORT_SOAK
// changes them: n stands for 1 to n, and m-n for m to n, a part of a series.
func SoakRuns(t testing.TB, runs int) (first, last int) {
	t.Helper()
	text := os.Getenv("COHORT_SOAK")
	if text == "" {
		return 1, runs
	}
	from, to, part := strings.Cut(text, "-")
	if !part {
		from, to = "1", text
	}
	first, err := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err != nil || err2 != nil || first < 1 || last < first {
		t.Fatalf("COHORT_SOAK is %q: want the number of runs, or the first and the last as in 101-200", text)
	}
	return first, last
}
