package sddp

import "math"

// PAR is a periodic autoregressive model of inflows, PAR(p) (Maceira and Damázio, 2006): the inflow of a
// reservoir in a season is
//
//	constant + sum over lags of coefficient * inflow that many stages before + residual
//
// The inflows before a stage are part of its state, after the storages: for each reservoir its last ones,
// the newest first. Residuals are those of the record, all reservoirs of a period and year together, which
// keeps their correlation and their skew.
//
// An inflow may be negative. A stage then has the missing water at a penalty (stage.addWater), so that the
// cost is a convex function of the state; see Larroyd et al. (2022) for this and for other ways.
type PAR struct {
	Constant [][]float64   // by season and reservoir
	Coefs    [][][]float64 // by season, reservoir and lag, from 1
	Residual [][][]float64 // by year, season and reservoir
	Past     [][]float64   // by reservoir: the inflows before the first stage that are state, the newest first
	Most     []float64     // by reservoir: the largest inflow of the record
	Mean     [][]float64   // by season and reservoir: of the record
}

// maxOrder is the largest order of a PAR: that of the Brazilian planning models.
const maxOrder = 6

// fitPAR fits a model to a record by year, season and reservoir. The coefficients solve the Yule-Walker
// equations of each season. The order is the largest one, up to most, whose partial autocorrelation differs from
// zero at a level of 5 %. past is by reservoir, the newest first, before the first stage, which is in season
// first; where it ends the means continue it.
func fitPAR(record [][][]float64, past [][]float64, most, first int) *PAR {
	periods, reserv := len(record[0]), len(record[0][0])
	m := &PAR{
		Constant: make([][]float64, periods), Coefs: make([][][]float64, periods), Mean: make([][]float64, periods),
		Most: make([]float64, reserv), Past: make([][]float64, reserv),
	}
	lags := make([]int, reserv)
	for r := range reserv {
		s := seriesOf(record, r)
		for _, x := range s.x {
			m.Most[r] = max(m.Most[r], x)
		}
		for p := range periods {
			coefs := s.coefs(p, most)
			constant := s.mean[p]
			for k, c := range coefs {
				constant -= c * s.mean[s.period(p-1-k)]
			}
			m.Mean[p] = append(m.Mean[p], s.mean[p])
			m.Constant[p] = append(m.Constant[p], constant)
			m.Coefs[p] = append(m.Coefs[p], coefs)
			lags[r] = max(lags[r], len(coefs))
		}
		for k := range lags[r] {
			x := s.mean[s.period(first-1-k)]
			if k < len(past[r]) {
				x = past[r][k]
			}
			m.Past[r] = append(m.Past[r], x)
		}
	}
	m.findResiduals(record, lags)
	return m
}

// findResiduals sets the residuals of all years whose lags the record has.
func (m *PAR) findResiduals(record [][][]float64, lags []int) {
	periods := len(record[0])
	skip := 0 // years
	for _, n := range lags {
		skip = max(skip, (n+periods-1)/periods)
	}
	for y := skip; y < len(record); y++ {
		year := make([][]float64, periods)
		for p := range periods {
			for r, x := range record[y][p] {
				x -= m.Constant[p][r]
				for k, c := range m.Coefs[p][r] {
					at := y*periods + p - 1 - k
					x -= c * record[at/periods][at%periods][r]
				}
				year[p] = append(year[p], x)
			}
		}
		m.Residual = append(m.Residual, year)
	}
}

// states returns how many inflows are part of the state.
func (m *PAR) states() (n int) {
	for _, past := range m.Past {
		n += len(past)
	}
	return n
}

// advance sets inflow, which holds the residuals of a stage in a period, to its inflows, and next to the
// lagged inflows after the stage, given those before it.
func (m *PAR) advance(inflow, before, next []float64, period int) {
	at := 0
	for r, past := range m.Past {
		inflow[r] += m.Constant[period][r]
		for k, c := range m.Coefs[period][r] {
			inflow[r] += c * before[at+k]
		}
		for k := range past {
			if k == 0 {
				next[at] = inflow[r]
			} else {
				next[at+k] = before[at+k-1]
			}
		}
		at += len(past)
	}
}

// growth returns the factor by which the model multiplies a deviation of a reservoir's inflow from its mean in a
// year, in the long run: the spectral radius of the product of the companion matrices of the periods. The inflows
// have a periodic distribution only if it is below 1 (Ula and Smadi, 1997); otherwise they grow without limit.
func (m *PAR) growth(r int) float64 {
	n := max(len(m.Past[r]), 1)
	year := identity(n)
	for p := range m.Coefs {
		next := make([][]float64, n) // companion matrix of the period times year
		for i := range next {
			next[i] = make([]float64, n)
			if i > 0 {
				next[i] = year[i-1]
				continue
			}
			for k, c := range m.Coefs[p][r] {
				for j := range n {
					next[0][j] += c * year[k][j]
				}
			}
		}
		year = next
	}
	return spectralRadius(year)
}

// identity returns the identity matrix.
func identity(n int) [][]float64 {
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n)
		a[i][i] = 1
	}
	return a
}

// spectralRadius returns the largest modulus of the eigenvalues of a square matrix: the limit of the kth root of
// the norm of its kth power (Gelfand, 1941), here for k = 2⁴⁰ by squaring.
func spectralRadius(a [][]float64) float64 {
	log, n := 0.0, len(a)
	for k := 1.0; k <= 1<<40; k *= 2 {
		norm := 0.0
		for _, row := range a {
			for _, x := range row {
				norm = max(norm, math.Abs(x))
			}
		}
		if norm == 0 {
			return 0
		}
		log += math.Log(norm) / k
		square := make([][]float64, n)
		for i := range square {
			square[i] = make([]float64, n)
			for j := range n {
				for l := range n {
					square[i][j] += a[i][l] / norm * (a[l][j] / norm)
				}
			}
		}
		a = square
	}
	return math.Exp(log)
}

// derive adds to dst the derivatives of a cost by the lagged inflows before a stage, given those by its
// inflows and by the lagged inflows after it.
func (m *PAR) derive(dst, byInflow, byNext []float64, period int) {
	at := 0
	for r, past := range m.Past {
		slope := byInflow[r]
		if len(past) > 0 {
			slope += byNext[at]
		}
		for k, c := range m.Coefs[period][r] {
			dst[at+k] += c * slope
		}
		for k := 1; k < len(past); k++ {
			dst[at+k-1] += byNext[at+k]
		}
		at += len(past)
	}
}

// history is the record of one reservoir.
type history struct {
	x, z      []float64 // in order of time, and standardized by period
	mean, std []float64 // by period
}

// seriesOf returns the record of a reservoir.
func seriesOf(record [][][]float64, r int) *history {
	periods, years := len(record[0]), float64(len(record))
	s := &history{mean: make([]float64, periods), std: make([]float64, periods)}
	for _, year := range record {
		for p := range year {
			s.x = append(s.x, year[p][r])
			s.mean[p] += year[p][r] / years
		}
	}
	for i, x := range s.x {
		off := x - s.mean[i%periods]
		s.std[i%periods] += off * off / years
	}
	for p := range s.std {
		s.std[p] = math.Sqrt(s.std[p])
	}
	for i, x := range s.x {
		z := 0.0
		if std := s.std[i%periods]; std > 0 {
			z = (x - s.mean[i%periods]) / std
		}
		s.z = append(s.z, z)
	}
	return s
}

// period returns the period of a stage, which may be before the first.
func (s *history) period(t int) int {
	n := len(s.mean)
	return (t%n + n) % n
}

// correlation returns the correlation of the inflow of a period with that of a number of stages before.
func (s *history) correlation(period, lag int) float64 {
	if lag == 0 {
		return 1
	}
	sum, n := 0.0, 0
	for i := s.period(period); i < len(s.z); i += len(s.mean) {
		if i >= lag {
			sum += s.z[i] * s.z[i-lag]
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// coefs returns the coefficients of a period, in the unit of the inflow.
func (s *history) coefs(period, most int) (best []float64) {
	years := float64(len(s.x) / len(s.mean))
	if s.std[period] == 0 {
		return nil
	}
	for order := 1; order <= min(most, len(s.x)/len(s.mean)/4); order++ {
		a := make([][]float64, order) // of lag j and lag k, and of lag j and now
		for j := range a {
			for k := range order {
				late, early := min(j, k)+1, max(j, k)+1
				a[j] = append(a[j], s.correlation(period-late, early-late))
			}
			a[j] = append(a[j], s.correlation(period, j+1))
		}
		if phi := eliminate(a); phi != nil && math.Abs(phi[order-1]) > 1.96/math.Sqrt(years) {
			best = phi
		}
	}
	for k := range best {
		if std := s.std[s.period(period-1-k)]; std > 0 {
			best[k] *= s.std[period] / std
		} else {
			best[k] = 0
		}
	}
	return best
}

// eliminate solves a system of linear equations, each its coefficients and then its right side. It returns
// nil if the system is nearly singular, and changes a.
func eliminate(a [][]float64) []float64 {
	n := len(a)
	for i := range n {
		for k := i + 1; k < n; k++ {
			if math.Abs(a[k][i]) > math.Abs(a[i][i]) {
				a[i], a[k] = a[k], a[i]
			}
		}
		if math.Abs(a[i][i]) < 1e-6 {
			return nil
		}
		for k := i + 1; k < n; k++ {
			f := a[k][i] / a[i][i]
			for j := i; j <= n; j++ {
				a[k][j] -= f * a[i][j]
			}
		}
	}
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		x[i] = a[i][n]
		for j := i + 1; j < n; j++ {
			x[i] -= a[i][j] * x[j]
		}
		x[i] /= a[i][i]
	}
	return x
}
