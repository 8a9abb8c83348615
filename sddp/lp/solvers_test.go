package lp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// maker makes solvers of one kind.
type maker func() Solver

// each runs a test of the interface with both solvers.
func each(t *testing.T, test func(t *testing.T, mk maker)) {
	for _, kind := range []string{Embedded, CLP} {
		t.Run(kind, func(t *testing.T) { test(t, open(t, kind)) })
	}
}

// open returns the maker of a kind, whose library the test needs.
func open(t testing.TB, kind string) maker {
	t.Helper()
	mk, _, err := Open(kind, 0)
	if err != nil {
		need.Missing(t, "%v", err)
	}
	return mk
}

// sample returns how many of n random programs a test solves: a fifth with -short.
func sample(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// embedded returns the embedded solver, whose internals some tests inspect.
func embedded() Solver { return New() }

// TestClpAnswersForEmbedded gives programs to Clp as if the embedded solver had found no answer to them. Its
// answers are proved, and the next answer is the embedded solver's own.
func TestClpAnswersForEmbedded(t *testing.T) {
	open(t, CLP)
	r := rand.New(rand.NewPCG(71, 72))
	for k := range 50 {
		p := anything(r, r.IntN(13), r.IntN(11))
		s := p.load(embedded).(*Simplex)
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
		s.load()
		s.status = NumericalFailure
		s.askClp()
		if err := p.proof(s, s.status); err != nil {
			t.Fatalf("program %d: Clp says %v: %v\n%v", k, s.status, err, p)
		}
		prove(t, fmt.Sprintf("program %d", k), p, s)
	}
}
