package lp

import (
	"math"
	"math/big"
)

// exact is the simplex method in whole numbers, for programs on which rounding defeats the method in
// float64. After a step of length zero it follows Bland's rule (1977) until a step is longer. Such steps
// never return to a basis, and others lower the objective: without rounding, that proves that it ends.
//
// All numbers of a program are whole multiples of 2^-unit, so multiplying them by 2^unit makes them
// whole. The tableau is condensed and free of fractions (Edmonds 1967; Avis 2000). Row i says
//
//	den*basic[i] + sum_j t[i][j]*nonbasic[j] = t[i][n]
//
// and the last row belongs to the objective: -t[m][j]/den is a reduced cost.
type exact struct {
	p        *program
	n, m     int
	unit     int
	t        [][]big.Int
	den      *big.Int
	basic    []int // the variable of each row; n and more are slacks
	nonbasic []int // the variable of each column
	place    []VarStatus
	lo, hi   []*big.Int // by variable, nil if infinite
	at       []big.Int  // by row: den times the value of its variable
	side     []int      // by row: -1 if its variable is below its bounds, 1 if above
	d        []big.Int  // by column: den times the reduced cost
	costs    *big.Int   // what the costs have been multiplied by, see flatten
	a, b     big.Int    // scratch
}

// exactMost is the largest number of coefficients, zeros included, that exact takes on. It would be busy
// with a larger program for hours.
const exactMost = 1 << 16

// solveExactly solves the program from the last basis and stores the result. A variable may violate its
// bounds by its primal tolerance if nothing satisfies them all. A reduced cost up to its dual tolerance
// counts as zero if it would make the program unbounded. It gives up after a number of iterations unless
// that is 0.
func (p *program) solveExactly(from []VarStatus, primal, dual []float64, limit int) Status {
	e := newExact(p, from)
	status := e.run(primal, dual, limit)
	copy(p.colPlace, e.place[:e.n])
	copy(p.rowPlace, e.place[e.n:])
	return e.store(status)
}

// newExact returns the tableau of a basis.
func newExact(p *program, from []VarStatus) *exact {
	n, m := len(p.cost), len(p.rhs)
	e := &exact{
		p: p, n: n, m: m, t: make([][]big.Int, m+1), den: big.NewInt(1), basic: make([]int, m), nonbasic: make([]int, n),
		place: append([]VarStatus(nil), from...), lo: make([]*big.Int, n+m), hi: make([]*big.Int, n+m),
		at: make([]big.Int, m), side: make([]int, m), d: make([]big.Int, n), costs: big.NewInt(1),
	}
	for _, all := range [...][]float64{p.cost, p.lo, p.hi, p.rhs, p.rowVal} {
		for _, v := range all {
			if _, exp := digits(v); v != 0 && !math.IsInf(v, 0) {
				e.unit = max(e.unit, -exp)
			}
		}
	}
	e.t[m] = make([]big.Int, n+1)
	for j, c := range p.cost {
		e.nonbasic[j] = j
		e.t[m][j].Neg(integer(c, e.unit))
		if !math.IsInf(p.lo[j], 0) {
			e.lo[j] = integer(p.lo[j], e.unit)
		}
		if !math.IsInf(p.hi[j], 0) {
			e.hi[j] = integer(p.hi[j], e.unit)
		}
		if e.place[j] != Basic {
			e.place[j] = allowed(e.place[j], p.lo[j], p.hi[j])
		}
	}
	for i, b := range p.rhs {
		e.basic[i] = n + i
		e.t[i] = make([]big.Int, n+1)
		for k := p.rowStart[i]; k < p.rowStart[i+1]; k++ {
			e.t[i][p.rowCol[k]].Set(integer(p.rowVal[k], e.unit))
		}
		e.t[i][n].Set(integer(b, 2*e.unit))
		if p.sense[i] != LE {
			e.hi[n+i] = new(big.Int)
		}
		if p.sense[i] != GE {
			e.lo[n+i] = new(big.Int)
		}
	}
	for j := range n {
		if e.place[j] == Basic && !e.enter(j) {
			e.place[j] = allowed(AtLower, p.lo[j], p.hi[j])
		}
	}
	for i, sense := range p.sense {
		if e.place[n+i] = AtLower; sense == GE {
			e.place[n+i] = AtUpper
		}
	}
	for _, v := range e.basic {
		e.place[v] = Basic
	}
	return e
}

// enter makes column j basic in place of the first slack that is not wanted in the basis and that allows
// it, and reports whether there is one.
func (e *exact) enter(j int) bool {
	for i, v := range e.basic {
		if v >= e.n && e.place[v] != Basic && e.t[i][j].Sign() != 0 {
			e.pivot(i, j)
			return true
		}
	}
	return false
}

// digits returns v as a whole number without factors of two, times 2^exp.
func digits(v float64) (z *big.Int, exp int) {
	fraction, exp := math.Frexp(v)
	z = big.NewInt(int64(fraction * (1 << 53)))
	low := z.TrailingZeroBits()
	return z.Rsh(z, low), exp - 53 + int(low)
}

// integer returns v times 2^by, which is a whole number.
func integer(v float64, by int) *big.Int {
	z, exp := digits(v)
	if v == 0 {
		return z
	}
	return z.Lsh(z, uint(exp+by))
}

// pivot exchanges the variable of row r and that of column c.
func (e *exact) pivot(r, c int) {
	by := new(big.Int).Set(&e.t[r][c])
	for i, row := range e.t {
		if i == r {
			continue
		}
		f := new(big.Int).Set(&row[c])
		for j := range row {
			if j == c {
				continue
			}
			z := &row[j]
			z.Mul(z, by)
			if f.Sign() != 0 && e.t[r][j].Sign() != 0 {
				z.Sub(z, e.a.Mul(f, &e.t[r][j]))
			}
			if z.Sign() != 0 {
				z.Quo(z, e.den)
			}
		}
		row[c].Neg(f)
	}
	e.t[r][c].Set(e.den)
	e.den = by
	if by.Sign() < 0 {
		by.Neg(by)
		for _, row := range e.t {
			for j := range row {
				row[j].Neg(&row[j])
			}
		}
	}
	e.basic[r], e.nonbasic[c] = e.nonbasic[c], e.basic[r]
}

// bound returns the value of a nonbasic variable, nil for 0.
func (e *exact) bound(v int) *big.Int {
	switch e.place[v] {
	case AtLower:
		return e.lo[v]
	case AtUpper:
		return e.hi[v]
	}
	return nil
}

// run takes steps until the basis is optimal or proves that there is no optimum. As long as variables are
// outside their bounds, it lowers the sum of the distances. Those variables pass for ones whose only bound
// is the nearest one, so that this too is a linear program until one of them arrives, and Bland's rule
// applies to it.
func (e *exact) run(primal, dual []float64, limit int) Status {
	bland := false
	for ; ; e.p.iterations++ {
		violated := e.values()
		e.reducedCosts(violated)
		c, up := e.entering(bland)
		switch {
		case c < 0 && !violated:
			return Optimal
		case c < 0:
			if !e.widen(primal) {
				return Infeasible
			}
			continue
		case limit > 0 && e.p.iterations >= limit:
			return IterationLimit
		}
		r, toUpper, moves := e.leaving(c, up)
		in := e.nonbasic[c]
		bland = !moves
		switch {
		case r == -2:
			if e.flatten(c, dual) {
				continue
			}
			e.storeRay(c, up)
			return Unbounded
		case r == -1:
			e.place[in] = AtLower
			if up {
				e.place[in] = AtUpper
			}
		default:
			out := e.basic[r]
			e.place[in], e.place[out] = Basic, AtLower
			if toUpper {
				e.place[out] = AtUpper
			}
			e.pivot(r, c)
		}
	}
}

// values computes the values of the basic variables and reports whether one is outside its bounds.
func (e *exact) values() (violated bool) {
	for i := range e.at {
		at := &e.at[i]
		at.Set(&e.t[i][e.n])
		for j, v := range e.nonbasic {
			if x := e.bound(v); x != nil && x.Sign() != 0 && e.t[i][j].Sign() != 0 {
				at.Sub(at, e.a.Mul(&e.t[i][j], x))
			}
		}
		v := e.basic[i]
		e.side[i] = 0
		if e.lo[v] != nil && at.Cmp(e.a.Mul(e.lo[v], e.den)) < 0 {
			e.side[i] = -1
		}
		if e.hi[v] != nil && at.Cmp(e.a.Mul(e.hi[v], e.den)) > 0 {
			e.side[i] = 1
		}
		violated = violated || e.side[i] != 0
	}
	return violated
}

// reducedCosts computes the reduced costs of the objective, or of the sum of the violations.
func (e *exact) reducedCosts(violated bool) {
	for j := range e.d {
		d := &e.d[j]
		if !violated {
			d.Neg(&e.t[e.m][j])
			continue
		}
		d.SetInt64(0)
		for i, side := range e.side {
			switch side {
			case -1:
				d.Add(d, &e.t[i][j])
			case 1:
				d.Sub(d, &e.t[i][j])
			}
		}
	}
}

// entering returns the column of a variable that improves the solution when it moves, and its direction,
// or -1: the first such variable, or the one with about the largest reduced cost in the scaled program.
func (e *exact) entering(first bool) (c int, up bool) {
	c = -1
	best := 0
	for j, v := range e.nonbasic {
		sign := e.d[j].Sign()
		if sign == 0 || e.place[v] == AtLower && sign > 0 || e.place[v] == AtUpper && sign < 0 ||
			e.lo[v] != nil && e.hi[v] != nil && e.lo[v].Cmp(e.hi[v]) == 0 {
			continue
		}
		score := 0
		switch {
		case first:
		case v < e.n:
			score = e.d[j].BitLen() + int(e.p.colExp[v]) - e.unit
		default:
			score = e.d[j].BitLen() - int(e.p.rowExp[v-e.n])
		}
		if c < 0 || score > best || score == best && v < e.nonbasic[c] {
			c, up, best = j, sign < 0, score
		}
	}
	return c, up
}

// leaving returns the row of the first variable that limits the step of the one in column c, and the
// bound that it arrives at; -1 if the entering variable arrives at its other bound, and -2 if nothing
// limits the step. It also returns whether the step is longer than zero. A variable below its bounds can only
// arrive at the lower one, and one above them at the upper one.
func (e *exact) leaving(c int, up bool) (r int, toUpper, moves bool) {
	r = -2
	in := e.nonbasic[c]
	far, speed := new(big.Int), big.NewInt(1) // the limit so far is their quotient
	if e.lo[in] != nil && e.hi[in] != nil {
		r = -1
		far.Sub(e.hi[in], e.lo[in])
	}
	for i, v := range e.basic {
		sign := e.t[i][c].Sign()
		rises, to := sign < 0 == up, (*big.Int)(nil)
		switch {
		case sign == 0:
		case rises && e.side[i] == 0, !rises && e.side[i] > 0:
			to = e.hi[v]
		case !rises && e.side[i] == 0, rises && e.side[i] < 0:
			to = e.lo[v]
		}
		if to == nil {
			continue
		}
		dist := new(big.Int).Sub(e.a.Mul(to, e.den), &e.at[i])
		dist.Abs(dist)
		move := new(big.Int).Abs(&e.t[i][c])
		order := -1
		if r != -2 {
			order = e.a.Mul(dist, speed).Cmp(e.b.Mul(far, move))
		}
		if order < 0 || order == 0 && r >= 0 && v < e.basic[r] {
			r, far, speed, toUpper = i, dist, move, to == e.hi[v]
		}
	}
	if r >= 0 && toUpper {
		if v := e.basic[r]; e.lo[v] != nil && e.lo[v].Cmp(e.hi[v]) == 0 {
			toUpper = false
		}
	}
	return r, toUpper, far.Sign() != 0
}

// widen moves the bounds of variables to their values if all violations are within the tolerance, and
// reports whether they are.
func (e *exact) widen(tol []float64) bool {
	for i, side := range e.side {
		v := e.basic[i]
		var by float64
		switch side {
		case -1:
			by = e.value(v, e.a.Sub(e.b.Mul(e.lo[v], e.den), &e.at[i]))
		case 1:
			by = e.value(v, e.a.Sub(&e.at[i], e.b.Mul(e.hi[v], e.den)))
		}
		if !(by <= tol[v]) {
			return false
		}
	}
	for i, side := range e.side {
		switch v := e.basic[i]; side {
		case -1:
			e.lo[v] = new(big.Int).Div(&e.at[i], e.den)
		case 1:
			e.hi[v] = new(big.Int).Neg(e.a.Div(e.a.Neg(&e.at[i]), e.den))
		}
	}
	return true
}

// flatten changes the cost of the variable in column c so that its reduced cost is 0, if that is within the
// tolerance, and reports whether it is. All costs are multiplied by den, which makes the changed one whole.
func (e *exact) flatten(c int, tol []float64) bool {
	v := e.nonbasic[c]
	if !(math.Abs(e.reduced(c)) <= tol[v]) {
		return false
	}
	e.costs.Mul(e.costs, e.den)
	row := e.t[e.m]
	for j := range row {
		row[j].Mul(&row[j], e.den)
	}
	row[c].SetInt64(0)
	return true
}

// reduced returns the reduced cost of the variable in column c.
func (e *exact) reduced(c int) float64 {
	unit := new(big.Int).Mul(e.den, e.costs)
	if e.nonbasic[c] < e.n {
		unit.Lsh(unit, uint(e.unit))
	}
	return quotient(&e.d[c], unit)
}

// value returns z/den in the unit of a variable.
func (e *exact) value(v int, z *big.Int) float64 {
	by := uint(e.unit)
	if v >= e.n {
		by *= 2
	}
	return quotient(z, new(big.Int).Lsh(e.den, by))
}

// quotient returns a/b, rounded once.
func quotient(a, b *big.Int) float64 {
	f, _ := new(big.Rat).SetFrac(a, b).Float64()
	return f
}

// store stores the result, every number of it rounded once.
func (e *exact) store(status Status) Status {
	p := e.p
	for j := range p.value {
		p.value[j] = 0
		if x := e.bound(j); x != nil {
			p.value[j] = quotient(x, new(big.Int).Lsh(big.NewInt(1), uint(e.unit)))
		}
	}
	for i, v := range e.basic {
		if v < e.n {
			p.value[v] = e.value(v, &e.at[i])
		}
	}
	for j, v := range e.nonbasic {
		switch {
		case v < e.n && status == Optimal:
			p.reduced[v] = e.reduced(j)
		case v >= e.n && status == Optimal:
			p.dual[v-e.n] = -e.reduced(j)
		case v >= e.n && status == Infeasible:
			p.farkas[v-e.n] = -quotient(&e.d[j], e.den)
		}
	}
	if status == Infeasible {
		for i, v := range e.basic {
			if v >= e.n {
				p.farkas[v-e.n] = float64(e.side[i])
			}
		}
	}
	if status != Optimal {
		return status
	}
	p.objective = 0
	check := 0.0
	for j, c := range p.cost {
		p.objective += c * p.value[j]
	}
	for _, y := range p.dual {
		check += y
	}
	if check += p.objective; check-check != 0 {
		p.objective = math.NaN()
		return NumericalFailure
	}
	return Optimal
}

// storeRay stores the direction of a step that nothing limits.
func (e *exact) storeRay(c int, up bool) {
	dir := -1.0
	if up {
		dir = 1
	}
	if in := e.nonbasic[c]; in < e.n {
		e.p.ray[in] = dir
	}
	for i, v := range e.basic {
		if v < e.n {
			e.p.ray[v] = -dir * quotient(&e.t[i][c], e.den)
		}
	}
}
