package lp

import "math"

// kernel represents a basis. With the slack of every row as a variable, a basis is a set of basic
// columns J and a set of tight rows R (those whose slack is not basic), as many of one as of the
// other, such that the matrix A[R,J], the kernel, is regular. Everything that the simplex
// method needs from the inverse of the basis follows from the inverse of the kernel and the rows of A.
// A row that is not tight costs one sparse product.
type kernel struct {
	k       int       // order of the kernel
	ld      int       // distance between rows of inv
	inv     []float64 // inv[p*ld+q]: row p for basic column kc[p], column q for tight row kr[q]
	kc, kr  []int32
	cpos    []int32 // position of a column in kc, or -1
	rpos    []int32 // position of a row in kr, or -1
	updates int     // exchanges since inv was computed from A

	rho  []float64 // row of the inverse of the basis, over the tight rows; see btran
	self int       // the row that is tight in that row only, or -1
	arow []float64 // that row times A, over the columns
	w    []float64 // column of the tableau, over the basic columns; see ftran
	ws   []float64 // the same over the rows with a basic slack

	swaps []int32
	rhsR  []float64 // scratch over the tight rows
}

// Limits of the pivot, relative to the largest entry of its column, below which a column counts as
// dependent on those before it. It starts at the least, grows when a basis turns out numerically
// singular, and is lowered in the cold start that follows when nothing else has helped.
const (
	singularLeast = 1e-14
	singularMost  = 1e-9
	singularLast  = 1e-15
)

// setKernel reads J and R off the places of the variables, in index order.
func (s *Simplex) setKernel() (rows, cols int) {
	n := len(s.cost)
	s.kc, s.kr = s.kc[:0], s.kr[:0]
	for j := range n {
		s.cpos[j] = -1
		if s.place[j] == Basic {
			s.cpos[j] = int32(len(s.kc))
			s.kc = append(s.kc, int32(j))
		}
	}
	for i := range s.rhs {
		s.rpos[i] = -1
		if s.place[n+i] != Basic {
			s.rpos[i] = int32(len(s.kr))
			s.kr = append(s.kr, int32(i))
		}
	}
	return len(s.kr), len(s.kc)
}

// factor computes the inverse of the kernel from A. It repairs a singular basis: columns that depend on
// earlier ones become nonbasic, and rows without a column get their slack back.
// It reports whether it repaired anything.
func (s *Simplex) factor() (repaired bool) {
	for s.tryFactor() {
		repaired = true
	}
	s.updates = 0
	return repaired
}

// tryFactor inverts the kernel in place by Gauss-Jordan elimination with row pivoting. If columns are
// dependent, it changes the basis instead and reports true.
func (s *Simplex) tryFactor() bool {
	n := len(s.cost)
	nr, nc := s.setKernel()
	s.reserve(max(nr, nc))
	s.k = nr
	for q, i := range s.kr {
		row := s.inv[q*s.ld : q*s.ld+nc]
		clear(row)
		for e := s.rowStart[i]; e < s.rowStart[i+1]; e++ {
			if p := s.cpos[s.rowCol[e]]; p >= 0 {
				row[p] = s.val[e]
			}
		}
	}
	ld, done, dropped := s.ld, 0, false
	s.swaps = resize(s.swaps, max(nr, nc))
	order := s.kr // row done+x of inv holds the entries of tight row order[done+x] while eliminating
	for p := range nc {
		best, at := 0.0, -1
		for q := done; q < nr; q++ {
			if v := math.Abs(s.inv[q*ld+p]); v > best {
				best, at = v, q
			}
		}
		if at < 0 || best < 2*s.singular && best <= s.singular*s.columnMax(s.kc[p]) {
			s.place[s.kc[p]] = allowed(AtLower, s.vlo[s.kc[p]], s.vhi[s.kc[p]])
			dropped = true
			continue
		}
		pivRow := s.inv[done*ld : done*ld+nc]
		if at != done {
			other := s.inv[at*ld : at*ld+nc]
			for j, v := range other {
				other[j], pivRow[j] = pivRow[j], v
			}
			order[at], order[done] = order[done], order[at]
		}
		s.swaps[done] = int32(at)
		f := 1 / pivRow[p]
		if !dropped {
			pivRow[p] = 1
		}
		for j := range pivRow {
			pivRow[j] *= f
		}
		for q := range nr {
			if q == done || dropped && q < done {
				continue
			}
			row := s.inv[q*ld : q*ld+nc]
			g := row[p]
			if g == 0 {
				continue
			}
			if !dropped {
				row[p] = 0
			}
			for j, v := range pivRow {
				row[j] -= g * v
			}
		}
		done++
	}
	for q := done; q < nr; q++ {
		s.place[n+int(order[q])] = Basic
	}
	if dropped || done < nr {
		return true
	}
	// Row interchanges of the matrix are column interchanges of its inverse.
	for p := nc - 1; p >= 0; p-- {
		if at := int(s.swaps[p]); at != p {
			for q := range nr {
				row := s.inv[q*ld:]
				row[p], row[at] = row[at], row[p]
			}
			order[p], order[at] = order[at], order[p]
		}
	}
	return false
}

// columnMax returns the largest modulus in a column of the scaled matrix.
func (s *Simplex) columnMax(j int32) float64 {
	most := 0.0
	for e := s.colStart[j]; e < s.colStart[j+1]; e++ {
		most = max(most, math.Abs(s.colVal[e]))
	}
	return most
}

// reserve makes room for a kernel of order k and keeps the inverse.
func (s *Simplex) reserve(k int) {
	s.rho, s.w, s.rhsR = resize(s.rho, k), resize(s.w, k), resize(s.rhsR, k)
	if k <= s.ld {
		return
	}
	ld := (k + k/4 + 15) &^ 7
	inv := make([]float64, ld*ld)
	for p := range s.k {
		copy(inv[p*ld:p*ld+s.k], s.inv[p*s.ld:])
	}
	s.inv, s.ld = inv, ld
}

// btran computes row r of the inverse of the basis, where r is the row of basic variable v: entries
// rho over the tight rows, and 1 for row self if v is the slack of that row. It then multiplies
// the row with A, into arow; entries of basic columns there mean nothing.
func (s *Simplex) btran(v int) {
	n := len(s.cost)
	rho := s.rho[:s.k]
	s.self = -1
	clear(s.arow)
	if v < n {
		p := int(s.cpos[v])
		copy(rho, s.inv[p*s.ld:p*s.ld+s.k])
	} else {
		clear(rho)
		s.self = v - n
		for e := s.rowStart[s.self]; e < s.rowStart[s.self+1]; e++ {
			a, j := s.val[e], s.rowCol[e]
			if p := int(s.cpos[j]); p >= 0 {
				for q, u := range s.inv[p*s.ld : p*s.ld+s.k] {
					rho[q] -= a * u
				}
			} else {
				s.arow[j] = a
			}
		}
	}
	for q, f := range rho {
		if f == 0 {
			continue
		}
		i := s.kr[q]
		for e := s.rowStart[i]; e < s.rowStart[i+1]; e++ {
			s.arow[s.rowCol[e]] += f * s.val[e]
		}
	}
}

// ftran computes the column of the tableau of nonbasic variable v: w over the basic columns, ws
// over the rows with a basic slack; entries of ws for tight rows mean nothing.
func (s *Simplex) ftran(v int) {
	n := len(s.cost)
	w := s.w[:s.k]
	clear(s.ws)
	if v >= n {
		q := int(s.rpos[v-n])
		for p := range w {
			w[p] = s.inv[p*s.ld+q]
		}
	} else {
		clear(w)
		for e := s.colStart[v]; e < s.colStart[v+1]; e++ {
			i, a := s.colRow[e], s.colVal[e]
			q := int(s.rpos[i])
			if q < 0 {
				s.ws[i] = a
				continue
			}
			for p := range w {
				w[p] += a * s.inv[p*s.ld+q]
			}
		}
	}
	for p, f := range w {
		if f == 0 {
			continue
		}
		j := s.kc[p]
		for e := s.colStart[j]; e < s.colStart[j+1]; e++ {
			s.ws[s.colRow[e]] -= f * s.colVal[e]
		}
	}
}

// entry returns the entry of the last ftran for a basic variable.
func (s *Simplex) entry(v int) float64 {
	if n := len(s.cost); v >= n {
		return s.ws[v-n]
	}
	return s.w[s.cpos[v]]
}

// verdict is the result of judge.
type verdict int8

const (
	pivotGood  verdict = iota
	pivotStale         // inaccurate: factor again and retry
	pivotBad           // inaccurate with a fresh factorization too
)

// judge compares the pivot as found by ftran with the same as found by btran.
func (s *Simplex) judge(alpha, alphaRow float64) verdict {
	size, gap := math.Abs(alpha), math.Abs(alpha-alphaRow)
	switch {
	case gap <= 1e-7*size && size >= pivotFine:
		return pivotGood
	case s.updates > 0:
		return pivotStale
	case gap <= 1e-3*size && size >= pivotTol:
		return pivotGood
	}
	return pivotBad
}

// exchange replaces basic variable out by nonbasic variable in, given btran(out) and ftran(in).
// All four cases are one rank-one update of the inverse and a repair of one row or column:
// a column for a column, a row for a row, one more of both, one less of both.
func (s *Simplex) exchange(out, in int) {
	n := len(s.cost)
	alpha := s.entry(out)
	rho, w := s.rho[:s.k], s.w[:s.k]
	pOut, qIn := -1, -1
	if out < n {
		pOut = int(s.cpos[out])
	}
	if in >= n {
		qIn = int(s.rpos[in-n])
	}
	for p, f := range w {
		if f == 0 || p == pOut {
			continue
		}
		f /= alpha
		row := s.inv[p*s.ld : p*s.ld+s.k]
		for q, u := range rho {
			row[q] -= f * u
		}
		if qIn >= 0 && pOut < 0 {
			row[qIn] = -f
		}
	}
	switch {
	case pOut >= 0 && qIn < 0:
		for q, u := range rho {
			s.inv[pOut*s.ld+q] = u / alpha
		}
		s.cpos[out], s.cpos[in], s.kc[pOut] = -1, int32(pOut), int32(in)
	case pOut < 0 && qIn >= 0:
		s.rpos[in-n], s.rpos[out-n], s.kr[qIn] = -1, int32(qIn), int32(out-n)
	case pOut < 0:
		k := s.k
		s.reserve(k + 1) // rho and w still name the filled memory
		for p, f := range w {
			s.inv[p*s.ld+k] = -f / alpha
		}
		for q, u := range rho {
			s.inv[k*s.ld+q] = u / alpha
		}
		s.inv[k*s.ld+k] = 1 / alpha
		s.kc, s.kr = append(s.kc, int32(in)), append(s.kr, int32(out-n))
		s.cpos[in], s.rpos[out-n] = int32(k), int32(k)
		s.k++
	default:
		k := s.k - 1
		if pOut != k {
			copy(s.inv[pOut*s.ld:pOut*s.ld+s.k], s.inv[k*s.ld:])
			s.kc[pOut] = s.kc[k]
			s.cpos[s.kc[k]] = int32(pOut)
		}
		if qIn != k {
			for p := range k {
				s.inv[p*s.ld+qIn] = s.inv[p*s.ld+k]
			}
			s.kr[qIn] = s.kr[k]
			s.rpos[s.kr[k]] = int32(qIn)
		}
		s.cpos[out], s.rpos[in-n] = -1, -1
		s.kc, s.kr = s.kc[:k], s.kr[:k]
		s.k = k
	}
	s.updates++
}
