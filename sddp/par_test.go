package sddp

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A long record of a known model gives its orders and, within the error of estimation, its coefficients.
// The residuals of the record continue it exactly.
func TestPARIsFittedToRecord(t *testing.T) {
	const years = 4000
	coefs := [][][]float64{{{0.6}, {0.3, 0.5}}, {{-0.4}, {}}} // by period and reservoir
	constant := [][]float64{{40, 30}, {90, 50}}
	rng := rand.New(rand.NewPCG(5, 6))
	record := make([][][]float64, years)
	at := func(y, p, r, lag int) float64 {
		if i := 2*y + p - lag; i >= 0 {
			return record[i/2][i%2][r]
		}
		return 70
	}
	for y := range record {
		for p := range 2 {
			record[y] = append(record[y], make([]float64, 2))
			common := rng.NormFloat64()
			for r := range 2 {
				x := constant[p][r] + 5*common + 3*rng.NormFloat64()
				for k, c := range coefs[p][r] {
					x += c * at(y, p, r, k+1)
				}
				record[y][p][r] = x
			}
		}
	}
	m := fitPAR(record, [][]float64{{11, 12, 13}, {21}}, maxOrder, 0)
	for p := range 2 {
		for r, want := range coefs[p] {
			got := m.Coefs[p][r]
			// A test at 5 % finds too high an order now and then; the coefficients beyond are small.
			if len(got) < len(want) {
				t.Errorf("period %d, reservoir %d: the order is %d, want %d", p, r, len(got), len(want))
				continue
			}
			for k := range got {
				c := 0.0
				if k < len(want) {
					c = want[k]
				}
				if math.Abs(got[k]-c) > 5/math.Sqrt(years) {
					t.Errorf("period %d, reservoir %d, lag %d: the coefficient is %.3f, want %.3f", p, r, k+1, got[k], c)
				}
			}
		}
	}
	if p := m.Past; p[0][0] != 11 || p[1][0] != 21 || len(p[1]) < 2 || p[1][1] != m.Mean[0][1] {
		t.Errorf("the inflows before the first stage are %v, want those given and then means", p)
	}
	both, one, other := 0.0, 0.0, 0.0
	skip := years - len(m.Residual)
	var state, next []float64
	for i := range m.Residual {
		y := i + skip
		for p := range 2 {
			state = state[:0]
			for r, past := range m.Past {
				for k := range past {
					state = append(state, at(y, p, r, k+1))
				}
			}
			next = make([]float64, len(state))
			inflow := slices.Clone(m.Residual[i][p])
			both, one, other = both+inflow[0]*inflow[1], one+inflow[0]*inflow[0], other+inflow[1]*inflow[1]
			m.advance(inflow, state, next, p)
			for r, x := range inflow {
				if want := record[y][p][r]; math.Abs(x-want) > 1e-9*math.Abs(want) {
					t.Fatalf("year %d, period %d, reservoir %d: the model gives %v, the record has %v", y, p, r, x, want)
				}
			}
		}
	}
	if got, want := both/math.Sqrt(one*other), 25.0/34; math.Abs(got-want) > 0.03 {
		t.Errorf("the residuals have the correlation %.3f, want %.3f", got, want)
	}
}

// brazil4With returns brazil4 with one of the models that its record allows.
func brazil4With(t *testing.T, model string) *Case {
	t.Helper()
	dir, from := t.TempDir(), filepath.Join("cases", "brazil4")
	for _, name := range append(caseFiles[:], historyFile) {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), `"stages"`, `"inflow_model": "`+model+`", "stages"`, 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := ReadCase(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// New inflows of the model for Brazil have the mean of the record of 1931 to 2013 and, as in the record, a
// dry month tends to follow a dry one.
func TestPARKeepsMeanAndPersistenceOfBrazil(t *testing.T) {
	c := brazil4With(t, "par")
	m := c.par()
	c.Stages++ // the path uses stages 2 to 13 of each year
	noise := NewNoise(c, 1, 10)
	const years = 3000
	state, next := c.initialState()[4:], make([]float64, m.states())
	var path [][]float64
	for i := range 12 * years {
		inflow := make([]float64, 4)
		noise.onPath(inflow, OutOfSample, i, 1+i%12)
		m.advance(inflow, state, next, (1+i)%12)
		path = append(path, inflow)
		state, next = next, state
	}
	record := seriesOf(readRecordOf(t, c), 0)
	for p := range 12 {
		sum, product, squares := 0.0, 0.0, 0.0
		for y := 1; y < years; y++ {
			i := 12*y + p // of period p+1
			x, before := path[i][0], path[i-1][0]
			sum += x
			product += (x - m.Mean[(p+1)%12][0]) * (before - m.Mean[p][0])
			squares += (x - m.Mean[(p+1)%12][0]) * (x - m.Mean[(p+1)%12][0])
		}
		mean, want := sum/(years-1), m.Mean[(p+1)%12][0]
		if math.Abs(mean-want) > 0.05*want {
			t.Errorf("period %d: the mean inflow is %.0f, that of the record %.0f", p+2, mean, want)
		}
		if product <= 0 || record.correlation(p+1, 1) <= 0 {
			t.Errorf("period %d: no persistence", p+2)
		}
		if std, want := math.Sqrt(squares/(years-1)), record.std[(p+1)%12]; math.Abs(std-want) > 0.2*want {
			t.Errorf("period %d: the deviation is %.0f, that of the record %.0f", p+2, std, want)
		}
	}
}

// readRecordOf returns the record of brazil4.
func readRecordOf(t *testing.T, c *Case) [][][]float64 {
	t.Helper()
	file := filepath.Join("cases", "brazil4", historyFile)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &problems{}
	record := c.readRecord(p, file, data)
	if err := p.err(); err != nil || len(record) != 82 {
		t.Fatalf("%d years: %v", len(record), err)
	}
	return record
}

// The growth is the spectral radius of the year: by hand for one lag (the product of the coefficients), for the
// constant coefficients 0.3 and 0.1 (roots 0.5 and -0.2 of x² = 0.3x + 0.1), for a complex pair (x² = x - 0.81, of
// modulus 0.9), and for a double root, 0.9, which rounding splits.
func TestPARGrowthIsSpectralRadius(t *testing.T) {
	for _, k := range []struct {
		coefs [][]float64 // by period
		want  float64
	}{
		{[][]float64{{0.5}, {-3}}, 1.5},
		{[][]float64{{0.5}, {}}, 0},
		{[][]float64{{}, {}}, 0},
		{[][]float64{{0.3, 0.1}}, 0.5},
		{[][]float64{{0.3, 0.1}, {0.3, 0.1}, {0.3, 0.1}}, 0.125},
		{[][]float64{{1, -0.81}}, 0.9},
		{[][]float64{{1.8, -0.81}}, 0.9},
		{[][]float64{{0, 1.21}, {0, 1.21}}, 1.21},
	} {
		m := &PAR{Past: [][]float64{nil}}
		for _, coefs := range k.coefs {
			m.Coefs = append(m.Coefs, [][]float64{coefs})
			m.Past[0] = make([]float64, max(len(m.Past[0]), len(coefs)))
		}
		if got := m.growth(0); math.Abs(got-k.want) > 1e-5 {
			t.Errorf("%v: growth %.9g, want %g", k.coefs, got, k.want)
		}
	}
}

// A record that doubles each year gives a warning, and that of brazil4 gives none.
func TestUnstablePARIsWarnedOf(t *testing.T) {
	c := small(3, 50, 20)
	c.Inflows = &InflowModel{PAR: &PAR{Coefs: [][][]float64{{{2}}}, Past: [][]float64{{1}}}}
	if got := strings.Join(c.Warnings(), "\n"); !strings.Contains(got, "is not stationary: it multiplies a deviation by 2 each year") {
		t.Errorf("got %q", got)
	}
	brazil := brazil4With(t, "par")
	for r := range brazil.Reservoirs {
		t.Logf("%s: %.3g", brazil.Reservoirs[r].Name, brazil.par().growth(r))
	}
	if got := brazil.Warnings(); len(got) > 0 {
		t.Errorf("brazil4: got %q", got)
	}
}

// A training with a PAR continues from a checkpoint with the same bits, like any other.
func TestPARTrainingResumes(t *testing.T) {
	c := brazil4With(t, "par")
	dir := filepath.Join(t.TempDir(), "run")
	opt := Options{Iterations: 6, Passes: 3, Openings: 3}
	want := trained(t, c, opt).Policy.Pool.SHA256()
	opt.Iterations, opt.Checkpoint = 3, dir
	trained(t, c, opt)
	opt.Iterations, opt.Resume = 6, dir
	tr := trained(t, c, opt)
	if got := tr.Policy.Pool.SHA256(); got != want || tr.Resumed != 3 {
		t.Errorf("resumed after %d iterations: cuts %.12s…, want %.12s…", tr.Resumed, got, want)
	}
}

// Historical scenarios are the years of the record in order, and forward passes may follow it too.
func TestHistoricalScenariosFollowRecord(t *testing.T) {
	c := brazil4With(t, "history")
	record := readRecordOf(t, c)
	opt := Options{Iterations: 2, Passes: 2, Sampling: Historical}
	tr := trained(t, c, opt)
	noise := NewNoise(c, opt.Seed, 1)
	p, err := newPlanner(c, noise, tr.Policy.Pool, embedded)
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []int{0, 7, len(record) + 7} {
		_, err = p.forward(t.Context(), func(stage int) []float64 {
			noise.onPath(p.inflow, Historical, scenario, stage)
			return p.inflow
		}, func(s *stage) {
			if want := record[scenario%len(record)][s.t]; s.t > 0 && !slices.Equal(s.inflow, want) {
				t.Errorf("scenario %d, stage %d: inflow %v, want %v", scenario, s.t+1, s.inflow, want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if other := trained(t, c, Options{Iterations: 2, Passes: 2}); other.Policy.Pool.SHA256() == tr.Policy.Pool.SHA256() {
		t.Error("forward passes in sample give the same cuts")
	}
	if _, err := Historical.checked(readShipped(t, "brazil4")); err == nil || !strings.Contains(err.Error(), "historical needs a record") {
		t.Errorf("without a record: got %v", err)
	}
}

// With a PAR, the residuals of the years in order reproduce the record from the inflows before it.
func TestHistoricalResidualsReproduceRecord(t *testing.T) {
	c := brazil4With(t, "par")
	record, m := readRecordOf(t, c), c.par()
	skip := len(record) - len(m.Residual)
	c.Stages = 36
	noise := NewNoise(c, 1, 1)
	var state []float64
	for r, past := range m.Past {
		for k := range past {
			state = append(state, record[skip][11-k][r]) // before the second year with residuals
		}
	}
	for stage := 12; stage < 36; stage++ {
		inflow, next := make([]float64, 4), make([]float64, len(state))
		noise.onPath(inflow, Historical, 0, stage)
		m.advance(inflow, state, next, stage%12)
		for r, x := range inflow {
			if want := record[skip+stage/12][stage%12][r]; math.Abs(x-want) > 1e-9*want {
				t.Fatalf("stage %d, reservoir %d: inflow %v, want %v", stage+1, r, x, want)
			}
		}
		state = next
	}
}
