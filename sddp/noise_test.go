package sddp

import (
	"math"
	"testing"
)

// small returns a case of one reservoir.
func small(stages int, mean, std float64) *Case {
	return &Case{
		Name: "small", Currency: "$", Stages: stages, Periods: []string{"only"}, HoursPerStage: Series{1}, DeficitCost: 100,
		Buses: []Bus{{Name: "here", LoadMW: []float64{10}}},
		Reservoirs: []Reservoir{{
			Name: "lake", MaxStorage: 10, InitialStorage: 5, MaxGenerationMW: Series{10}, InflowMean: []float64{mean}, InflowStd: []float64{std},
		}},
	}
}

// The openings have the mean and the deviation of the case, and are lognormal: their logarithm has
// no skew.
func TestInflowsHaveMeanAndDeviationOfCase(t *testing.T) {
	const mean, std, n = 50.0, 20.0, 40000
	noise := NewNoise(small(2, mean, std), 3, n)
	var sum, squares, cubes, logs float64
	s2 := math.Log1p(std * std / (mean * mean))
	for k := range n {
		x := noise.Inflow(1, k)[0]
		sum += x
		squares += (x - mean) * (x - mean)
		z := (math.Log(x) - math.Log(mean) + s2/2) / math.Sqrt(s2)
		logs += z
		cubes += z * z * z
	}
	// Five standard errors each; that of the variance is taken from the fourth moment of this law.
	if got := sum / n; math.Abs(got-mean) > 5*std/math.Sqrt(n) {
		t.Errorf("mean %.3f, want %.3f", got, mean)
	}
	e := math.Exp(s2)
	kurtosis := math.Pow(e, 4) + 2*math.Pow(e, 3) + 3*e*e - 3
	if got := squares / n; math.Abs(got-std*std) > 5*std*std*math.Sqrt((kurtosis-1)/n) {
		t.Errorf("variance %.2f, want %.2f", got, std*std)
	}
	if got := logs / n; math.Abs(got) > 5/math.Sqrt(n) {
		t.Errorf("mean of the standardised logarithm %.4f, want 0", got)
	}
	if got := cubes / n; math.Abs(got) > 5*math.Sqrt(15.0/n) {
		t.Errorf("third moment of the standardised logarithm %.4f, want 0", got)
	}
}

func TestFirstStageInflowIsMean(t *testing.T) {
	noise := NewNoise(small(3, 50, 20), 3, 4)
	if n := noise.Openings(0); n != 1 {
		t.Errorf("the first stage has %d openings, want 1", n)
	}
	if a := noise.Inflow(0, 0)[0]; a != 50 {
		t.Errorf("the first stage's inflow is %v, want its mean 50", a)
	}
	out := make([]float64, 1)
	noise.outside(out, 9, 0)
	if out[0] != 50 || noise.path(9, 0) != 0 || noise.forward(9, 9, 0) != 0 {
		t.Errorf("a scenario's first inflow is not the mean")
	}
}

// An opening depends on its own coordinates: more openings or stages leave it as it was.
func TestOpeningDependsOnItsCoordinatesOnly(t *testing.T) {
	few, many := NewNoise(small(3, 50, 20), 3, 4), NewNoise(small(6, 50, 20), 3, 9)
	for s := range 3 {
		for k := range few.Openings(s) {
			if a, b := few.Inflow(s, k)[0], many.Inflow(s, k)[0]; a != b {
				t.Errorf("stage %d opening %d: %v with 4 openings, %v with 9", s, k, a, b)
			}
		}
	}
	if a, b := few.Inflow(1, 0)[0], few.Inflow(2, 0)[0]; a == b {
		t.Errorf("two stages have the same inflow %v", a)
	}
}

func TestInflowWithoutDeviationIsMean(t *testing.T) {
	noise := NewNoise(small(3, 50, 0), 3, 4)
	for k := range 4 {
		if a := noise.Inflow(2, k)[0]; a != 50 {
			t.Errorf("opening %d is %v, want the mean 50", k, a)
		}
	}
}
