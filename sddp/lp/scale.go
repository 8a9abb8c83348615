package lp

import (
	"fmt"
	"math"
)

// scaled is the program the simplex method works on: x_j = 2^colExp[j] x'_j, row i multiplied by
// 2^rowExp[i] and the objective by 2^objExp. Powers of two make scaling and unscaling exact.
//
// Invariant: it is a function of the program, not of the history of changes.
type scaled struct {
	rowExp, colExp []int32
	objExp         int32
	val            []float64 // scaled rowVal
	colStart       []int32   // column j owns entries colStart[j] to colStart[j+1]
	colRow         []int32   // rows of a column, ascending
	colVal         []float64
	least, most    []int32 // scratch: exponents seen in a column
	mark           []int32 // scratch of AddRow, zero between calls
}

// scalePasses is the number of sweeps of geometric scaling. Exponents converge after two or three.
const scalePasses = 3

// maxScale bounds the exponents, so that the factors and their inverses are normal numbers.
const maxScale = 1000

// pow2 returns 2^e for |e| < 1023.
func pow2(e int32) float64 { return math.Float64frombits(uint64(1023+e) << 52) }

// exponent returns the binary exponent of a nonzero v.
func exponent(v float64) int32 { return int32(math.Float64bits(v)>>52&0x7ff) - 1023 }

func clampScale(e int32) int32 { return min(max(e, -maxScale), maxScale) }

// resize returns a slice of n elements of unspecified value that reuses the memory of v.
func resize[T any](v []T, n int) []T {
	if cap(v) >= n {
		return v[:n]
	}
	return make([]T, n, n+n/2+16)
}

// validate returns the first error in the program, in index order.
func (s *program) validate() error {
	if err := s.misuse; err != nil {
		s.misuse = nil
		return err
	}
	if s.badErr != nil {
		return s.badErr
	}
	for j, c := range s.cost {
		lo, hi := s.lo[j], s.hi[j]
		if c-c != 0 {
			return fmt.Errorf("%w: column %d: got cost %v", ErrMisuse, j, c)
		}
		if !(lo <= hi) || math.IsInf(lo, 1) || math.IsInf(hi, -1) {
			return fmt.Errorf("%w: column %d: got bounds %v and %v", ErrMisuse, j, lo, hi)
		}
	}
	for i, b := range s.rhs {
		if b-b != 0 {
			return fmt.Errorf("%w: row %d: got right-hand side %v", ErrMisuse, i, b)
		}
	}
	if s.changed {
		for i := range s.rhs {
			for k := s.rowStart[i]; k < s.rowStart[i+1]; k++ {
				if v := s.rowVal[k]; v-v != 0 {
					return fmt.Errorf("%w: row %d: got coefficient %v of column %d", ErrMisuse, i, v, s.rowCol[k])
				}
			}
		}
	}
	return nil
}

// rescale computes the scale factors, the scaled rows and the scaled columns. Geometric scaling
// (Curtis and Reid 1972 in spirit: the middle of the exponents of every row, then of every column)
// on exponents alone, then the largest coefficient of every row brought to [1, 2).
func (s *program) rescale() {
	n, m, nz := len(s.cost), len(s.rhs), len(s.rowCol)
	s.rowExp, s.colExp = resize(s.rowExp, m), resize(s.colExp, n)
	s.least, s.most = resize(s.least, n), resize(s.most, n)
	s.val, s.colVal, s.colRow = resize(s.val, nz), resize(s.colVal, nz), resize(s.colRow, nz)
	s.colStart = resize(s.colStart, n+1)
	clear(s.colExp)
	const none = math.MaxInt32
	for pass := range scalePasses + 1 {
		for j := range s.least {
			s.least[j], s.most[j] = none, -none
		}
		for i := range s.rhs {
			a, b := s.rowStart[i], s.rowStart[i+1]
			least, most := int32(none), int32(-none)
			for k := a; k < b; k++ {
				e := exponent(s.rowVal[k]) + s.colExp[s.rowCol[k]]
				least, most = min(least, e), max(most, e)
			}
			r := int32(0)
			if a < b {
				if r = -most; pass < scalePasses {
					r = -((least + most) >> 1)
				}
			}
			s.rowExp[i] = clampScale(r)
			for k := a; k < b; k++ {
				j, e := s.rowCol[k], exponent(s.rowVal[k])+s.rowExp[i]
				s.least[j], s.most[j] = min(s.least[j], e), max(s.most[j], e)
			}
		}
		if pass < scalePasses {
			for j, e := range s.least {
				if e != none {
					s.colExp[j] = clampScale(-((e + s.most[j]) >> 1))
				}
			}
		}
	}
	clear(s.colStart)
	for i := range s.rhs {
		r := pow2(s.rowExp[i])
		for k := s.rowStart[i]; k < s.rowStart[i+1]; k++ {
			j := s.rowCol[k]
			s.val[k] = s.rowVal[k] * r * pow2(s.colExp[j])
			s.colStart[j+1]++
		}
	}
	for j := range n {
		s.colStart[j+1] += s.colStart[j]
		s.least[j] = s.colStart[j]
	}
	for i := range s.rhs {
		for k := s.rowStart[i]; k < s.rowStart[i+1]; k++ {
			at := s.least[s.rowCol[k]]
			s.least[s.rowCol[k]]++
			s.colRow[at], s.colVal[at] = int32(i), s.val[k]
		}
	}
	s.changed = false
}

// scaleCosts writes the scaled costs to dst, the largest of them in [1, 2).
func (s *program) scaleCosts(dst []float64) {
	most := int32(math.MinInt32)
	for j, c := range s.cost {
		if c != 0 {
			most = max(most, exponent(c)+s.colExp[j])
		}
	}
	s.objExp = 0
	if most != math.MinInt32 {
		s.objExp = clampScale(-most)
	}
	f := pow2(s.objExp)
	for j, c := range s.cost {
		dst[j] = c * pow2(s.colExp[j]) * f
	}
}

// store stores values, reduced costs and duals in the units of the program. It returns the objective,
// and whether it and the duals are finite.
func (s *program) store(x, d, y []float64) (objective float64, finite bool) {
	for j, c := range s.cost {
		f := pow2(s.colExp[j])
		s.value[j] = x[j] * f
		s.reduced[j] = d[j] / f / pow2(s.objExp)
		objective += c * s.value[j]
	}
	check := objective
	for i := range s.dual {
		s.dual[i] = y[i] * pow2(s.rowExp[i]) / pow2(s.objExp)
		check += s.dual[i]
	}
	return objective, check-check == 0
}
