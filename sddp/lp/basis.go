package lp

import (
	"fmt"
	"math"
)

// preferred returns the place of a nonbasic column: the finite bound that its cost favors, otherwise the
// one nearest zero.
func preferred(cost, lo, hi float64) VarStatus {
	lower, upper := !math.IsInf(lo, -1), !math.IsInf(hi, 1)
	switch {
	case !lower && !upper:
		return Free
	case !lower:
		return AtUpper
	case !upper:
		return AtLower
	case cost < 0, cost == 0 && math.Abs(hi) < math.Abs(lo):
		return AtUpper
	}
	return AtLower
}

// allowed returns place, or the nearest place a nonbasic variable with these bounds can have.
func allowed(place VarStatus, lo, hi float64) VarStatus {
	lower, upper := !math.IsInf(lo, -1), !math.IsInf(hi, 1)
	switch {
	case place == AtLower && lower, place == AtUpper && upper && lo != hi:
		return place
	case place == Free && lower && upper && math.Abs(hi) < math.Abs(lo):
		return AtUpper
	case lower:
		return AtLower
	case upper:
		return AtUpper
	}
	return Free
}

// Basis returns a copy of the current basis, from which the next Solve starts, in the memory of dst if
// that is large enough.
func (s *program) Basis(dst Basis) Basis {
	return Basis{
		Cols: append(dst.Cols[:0], s.colPlace...),
		Rows: append(dst.Rows[:0], s.rowPlace...),
	}
}

// SetBasis makes the next Solve start from a copy of b. Columns beyond the end of b are placed as by
// ResetBasis, and slacks of rows beyond its end become basic. If b has more columns or rows than the
// program, or an invalid place, SetBasis returns [ErrMisuse] and changes nothing. Any other basis is
// valid: the next Solve repairs it, always in the same way.
func (s *program) SetBasis(b Basis) error {
	if len(b.Cols) > len(s.cost) || len(b.Rows) > len(s.rhs) {
		return fmt.Errorf("%w: set basis: got %d columns and %d rows, want at most %d and %d",
			ErrMisuse, len(b.Cols), len(b.Rows), len(s.cost), len(s.rhs))
	}
	for _, places := range [2][]VarStatus{b.Cols, b.Rows} {
		for k, p := range places {
			if p < AtLower || p > Basic {
				return fmt.Errorf("%w: set basis: got place %d at index %d, want AtLower to Basic", ErrMisuse, p, k)
			}
		}
	}
	s.ResetBasis()
	copy(s.colPlace, b.Cols)
	copy(s.rowPlace, b.Rows)
	return nil
}

// ResetBasis makes all slacks basic. It places every column at the finite bound that its cost favors,
// otherwise at the one nearest zero.
func (s *program) ResetBasis() {
	for j := range s.colPlace {
		s.colPlace[j] = preferred(s.cost[j], s.lo[j], s.hi[j])
	}
	for i := range s.rowPlace {
		s.rowPlace[i] = Basic
	}
}
