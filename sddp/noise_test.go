package sddp

import (
	"math"
	"slices"
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
		t.Errorf("mean of the standardized logarithm %.4f, want 0", got)
	}
	if got := cubes / n; math.Abs(got) > 5*math.Sqrt(15.0/n) {
		t.Errorf("third moment of the standardized logarithm %.4f, want 0", got)
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
	noise.onPath(out, OutOfSample, 9, 0)
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

// threeLakes returns a case with an inflow model, whose reservoirs have no other inflow.
func threeLakes(model *InflowModel) *Case {
	c := small(6, 50, 20)
	c.Periods = []string{"wet", "dry"}
	c.Inflows, c.Reservoirs = model, make([]Reservoir, 3)
	return c
}

// The logarithms of correlated inflows have the correlation of the case in the period, in openings and in new
// scenarios, and each inflow has its mean.
func TestInflowsHaveCorrelationOfCase(t *testing.T) {
	wet := [][]float64{{1, 0.4, 0}, {0.4, 1, 0.9}, {0, 0.9, 1}}
	want := [][]float64{{1, 0.8, -0.3}, {0.8, 1, 0.1}, {-0.3, 0.1, 1}}
	c := threeLakes(&InflowModel{Correlation: [][][]float64{wet, want}}) // stage 4 is dry
	const n, mean, std = 20000, 50.0, 20.0
	for r := range c.Reservoirs {
		c.Reservoirs[r].InflowMean, c.Reservoirs[r].InflowStd = []float64{mean, mean}, []float64{std, std}
	}
	noise := NewNoise(c, 5, n)
	s2 := math.Log1p(std * std / (mean * mean))
	for _, outside := range []bool{false, true} {
		var sums [3]float64
		var products [3][3]float64
		for k := range n {
			x := make([]float64, 3)
			if outside {
				noise.onPath(x, OutOfSample, k, 3)
			} else {
				copy(x, noise.Inflow(3, k))
			}
			for i := range x {
				sums[i] += x[i]
				for j := range x {
					products[i][j] += (math.Log(x[i]/mean) + s2/2) * (math.Log(x[j]/mean) + s2/2) / s2
				}
			}
		}
		for i := range want {
			if got := sums[i] / n; math.Abs(got-mean) > 5*std/math.Sqrt(n) {
				t.Errorf("reservoir %d has the mean %.3f, want %v", i, got, mean)
			}
			for j := range want {
				if got := products[i][j] / n; math.Abs(got-want[i][j]) > 5*math.Sqrt(2.0/n) {
					t.Errorf("the correlation of reservoirs %d and %d is %.3f, want %.3f", i, j, got, want[i][j])
				}
			}
		}
	}
}

// The openings of a stage are the inflows of its period in each year, for all reservoirs together. A new
// scenario follows the record.
func TestHistoryGivesJointOpenings(t *testing.T) {
	record := [][][]float64{{{1, 2, 3}, {4, 5, 6}}, {{7, 8, 9}, {10, 11, 12}}, {{13, 14, 15}, {16, 17, 18}}}
	noise := NewNoise(threeLakes(&InflowModel{Record: record}), 5, 10)
	if got := noise.Inflow(0, 0); noise.Openings(0) != 1 || !slices.Equal(got, []float64{7, 8, 9}) {
		t.Errorf("the first stage has %d openings, %v; want the mean", noise.Openings(0), got)
	}
	for stage := 1; stage < 6; stage++ {
		for k, year := range record {
			if got := noise.Inflow(stage, k); noise.Openings(stage) != 3 || noise.Weight(stage, k) != 1.0/3 || !slices.Equal(got, year[stage%2]) {
				t.Errorf("stage %d, opening %d of %d: %v, want %v", stage, k, noise.Openings(stage), got, year[stage%2])
			}
		}
	}
	years := map[float64]bool{}
	for scenario := range 50 {
		var path [6][3]float64
		for stage := range path {
			noise.onPath(path[stage][:], Historical, scenario, stage)
		}
		years[path[1][0]] = true
		for stage := 2; stage < 6; stage++ {
			before, now := path[stage-1][0], path[stage][0]
			if now != before+3 && !(before == 16 && now == 1) {
				t.Errorf("scenario %d: %v follows %v", scenario, now, before)
			}
		}
	}
	if len(years) != 3 {
		t.Errorf("50 scenarios begin in %d of 3 years", len(years))
	}
}

// Openings are chosen with their probabilities, and have their weights in the lower bound and the cuts.
func TestOpeningsHaveGivenProbabilities(t *testing.T) {
	stage := []Opening{{0.2, []float64{1, 1, 1}}, {0.7, []float64{2, 2, 2}}, {0.1, []float64{3, 3, 3}}}
	noise := NewNoise(threeLakes(&InflowModel{Openings: [][]Opening{stage, stage, stage, stage, stage, stage}}), 5, 10)
	const n = 20000
	for at, choose := range []func(i int) int{
		func(i int) int { return noise.forward(i, 2, 0) }, func(i int) int { return noise.path(i, 1) },
		func(i int) int { return noise.tested(10, i, 2) },
		func(i int) int { var x [3]float64; noise.onPath(x[:], OutOfSample, i, 0); return int(x[0]) - 1 },
	} {
		var count [3]float64
		for i := range n {
			count[choose(i)]++
		}
		for k, o := range stage {
			if p := o.Probability; math.Abs(count[k]/n-p) > 5*math.Sqrt(p*(1-p)/n) {
				t.Errorf("choice %d: opening %d has the share %.3f, want %.3f", at, k, count[k]/n, p)
			}
		}
	}
}
