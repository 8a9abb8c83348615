// Package soak says which of its random runs a test makes.
package soak

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Variable changes the runs of tests: n stands for 1 to n, and m-n for m to n, a part of a series.
const Variable = "COHORT_SOAK"

// Runs returns the first and the last run that a test makes, which usually makes the given number of runs.
func Runs(t testing.TB, runs int) (first, last int) {
	t.Helper()
	text := os.Getenv(Variable)
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
		t.Fatalf("%s is %q: want the number of runs, or the first and the last as in 101-200", Variable, text)
	}
	return first, last
}
