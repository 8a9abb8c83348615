package lp

import (
	"os"
	"testing"
)

// maker makes solvers of one kind.
type maker func() Solver

// each runs a test of the interface with every solver there is.
func each(t *testing.T, test func(t *testing.T, mk maker)) {
	for _, kind := range []string{Embedded, CLP} {
		t.Run(kind, func(t *testing.T) { test(t, open(t, kind)) })
	}
}

// open returns the maker of a kind. Without its library the test is skipped, unless
// COHORT_REQUIRE_TOOLS=1 says that the set-up has installed everything.
func open(t testing.TB, kind string) maker {
	t.Helper()
	mk, _, err := Open(kind, 0)
	if err != nil {
		if os.Getenv("COHORT_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return mk
}

// embedded makes the solver whose inside some tests look at.
func embedded() Solver { return New() }
