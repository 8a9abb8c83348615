package npb

import (
	"math"
	"testing"
)

// The report has the lines that docs/benchmarks.md shows, with all digits of values.
func TestReportShowsVerificationTimesAndRate(t *testing.T) {
	r := Report{
		Kernel: "MG", Class: "A", Verified: true, Seconds: 0.3564, Communication: [2]float64{0.0091, 0.0118}, Mops: 10927.81, Ranks: 2, Backend: "shm",
		Result: Result{Size: "256 x 256 x 256", Iterations: 4, Checks: []Check{Near("norm of residual", 0.25e-5, 0.125, 1e-8)}},
	}
	want := `MG class A: 256 x 256 x 256, iterations: 4
  norm of residual    0.0000025, want 0.125
  verification        successful
  time                0.356 s
  in communication    0.009 s, with waiting up to 0.012 s
  Mop/s in all        10927.8
  ranks               2, with threads: 1, backend: shm
`
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A result without checks, or with a wrong one, is not verified.
func TestWrongValuesAreNotVerified(t *testing.T) {
	for _, c := range []struct {
		value, want, tolerance float64
		passes                 bool
	}{
		{1 + 1e-9, 1, 1e-8, true}, {1 + 1e-7, 1, 1e-8, false}, {-1 - 1e-9, -1, 1e-8, true}, {1, -1, 1e-8, false},
		{5, 5, 0, true}, {5, 6, 0, false}, {math.NaN(), 1, 1e-8, false},
	} {
		good, this := Near("good", 1, 1, 0), Near("this", c.value, c.want, c.tolerance)
		if got := (Result{Checks: []Check{good, this}}).Verified(); got != c.passes {
			t.Errorf("%v, want %v but for %v: verified is %v", c.value, c.want, c.tolerance, got)
		}
	}
	if (Result{}).Verified() {
		t.Error("a result without checks is verified")
	}
}
