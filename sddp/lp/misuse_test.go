package lp

import (
	"errors"
	"math"
	"testing"
)

func TestMisuseIsReportedOnce(t *testing.T) { each(t, testMisuseIsReportedOnce) }

func testMisuseIsReportedOnce(t *testing.T, mk maker) {
	nan := math.NaN()
	cases := []struct {
		name string
		do   func(s Solver)
		undo func(s Solver) // nil: the misuse is reported once
	}{
		{"rhs of no row", func(s Solver) { s.SetRHS(2, 1) }, nil},
		{"rhs of row -1", func(s Solver) { s.SetRHS(-1, 1) }, nil},
		{"bounds of no column", func(s Solver) { s.SetBounds(2, 0, 1) }, nil},
		{"cost of no column", func(s Solver) { s.SetCost(-1, 0) }, nil},
		{"truncate beyond the end", func(s Solver) { s.Truncate(3) }, nil},
		{"truncate to -1", func(s Solver) { s.Truncate(-1) }, nil},
		{"NaN rhs", func(s Solver) { s.SetRHS(0, nan) }, func(s Solver) { s.SetRHS(0, 1) }},
		{"infinite rhs", func(s Solver) { s.SetRHS(0, Inf) }, func(s Solver) { s.SetRHS(0, 1) }},
		{"NaN cost", func(s Solver) { s.SetCost(0, nan) }, func(s Solver) { s.SetCost(0, 1) }},
		{"infinite cost", func(s Solver) { s.SetCost(0, -Inf) }, func(s Solver) { s.SetCost(0, 1) }},
		{"NaN lower bound", func(s Solver) { s.SetBounds(0, nan, 1) }, func(s Solver) { s.SetBounds(0, 0, 9) }},
		{"NaN upper bound", func(s Solver) { s.SetBounds(0, 0, nan) }, func(s Solver) { s.SetBounds(0, 0, 9) }},
		{"crossed bounds", func(s Solver) { s.SetBounds(0, 2, 1) }, func(s Solver) { s.SetBounds(0, 0, 9) }},
		{"lower bound +Inf", func(s Solver) { s.SetBounds(0, Inf, Inf) }, func(s Solver) { s.SetBounds(0, 0, 9) }},
		{"upper bound -Inf", func(s Solver) { s.SetBounds(0, -Inf, -Inf) }, func(s Solver) { s.SetBounds(0, 0, 9) }},
		{"NaN coefficient", func(s Solver) { s.AddRow(LE, 1, []int{0}, []float64{nan}) }, func(s Solver) { s.Truncate(2) }},
		{"infinite coefficient", func(s Solver) { s.AddRow(LE, 1, []int{0}, []float64{Inf}) }, func(s Solver) { s.Truncate(2) }},
		{"row of no column", func(s Solver) { s.AddRow(LE, 1, []int{2}, []float64{1}) }, func(s Solver) { s.Truncate(2) }},
		{"row of column -1", func(s Solver) { s.AddRow(LE, 1, []int{-1}, []float64{1}) }, func(s Solver) { s.Truncate(2) }},
		{"lengths differ", func(s Solver) { s.AddRow(LE, 1, []int{0}, nil) }, func(s Solver) { s.Truncate(2) }},
		{"no such sense", func(s Solver) { s.AddRow(3, 1, nil, nil) }, func(s Solver) { s.Truncate(2) }},
	}
	for _, c := range cases {
		p := &problem{}
		p.column(1, 0, 9)
		p.column(2, 0, 9)
		p.dense(GE, 1, 1, 1)
		p.dense(LE, 8, 1, 0)
		s := p.load(mk)
		c.do(s)
		status, err := s.Solve()
		if !errors.Is(err, ErrMisuse) || status != NumericalFailure {
			t.Errorf("%s: got %v, %v", c.name, status, err)
		}
		if c.undo != nil {
			if _, err := s.Solve(); !errors.Is(err, ErrMisuse) {
				t.Errorf("%s, not mended: got %v", c.name, err)
			}
			c.undo(s)
		}
		if status, err := s.Solve(); status != Optimal || err != nil || s.Objective() != 1 {
			t.Errorf("%s, mended: got %v, %v, objective %v", c.name, status, err, s.Objective())
		}
	}
}

func TestSetBasisRejectsMisuse(t *testing.T) { each(t, testSetBasisRejectsMisuse) }

func testSetBasisRejectsMisuse(t *testing.T, mk maker) {
	p := &problem{}
	p.column(1, 0, 9)
	p.dense(GE, 1, 1)
	s := p.load(mk)
	want := s.Basis(Basis{})
	for _, b := range []Basis{
		{Cols: make([]VarStatus, 2)},
		{Rows: make([]VarStatus, 2)},
		{Cols: []VarStatus{Basic + 1}},
		{Rows: []VarStatus{AtLower - 1}},
	} {
		if err := s.SetBasis(b); !errors.Is(err, ErrMisuse) {
			t.Errorf("%v: got %v", b, err)
		}
	}
	if got := s.Basis(Basis{}); got.Cols[0] != want.Cols[0] || got.Rows[0] != want.Rows[0] {
		t.Errorf("a refused basis left %v, want %v", got, want)
	}
}

func TestSolveStopsAtIterationLimit(t *testing.T) { each(t, testSolveStopsAtIterationLimit) }

func testSolveStopsAtIterationLimit(t *testing.T, mk maker) {
	p := &problem{}
	for range 3 {
		p.column(1, 0, Inf)
	}
	p.dense(GE, 1, 1, 0, 0)
	p.dense(GE, 1, 0, 1, 0)
	p.dense(GE, 1, 0, 0, 1)
	s := p.load(mk)
	s.SetIterationLimit(2) // each row needs one
	if status, err := s.Solve(); status != IterationLimit || err != nil {
		t.Errorf("got %v, %v", status, err)
	}
	s.SetIterationLimit(0)
	if status := prove(t, "without limit", p, s); status != Optimal {
		t.Errorf("got %v", status)
	}
}

func TestStringsOfConstants(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Optimal.String(), "optimal"}, {Infeasible.String(), "infeasible"}, {Unbounded.String(), "unbounded"},
		{IterationLimit.String(), "iteration limit"}, {NumericalFailure.String(), "numerical failure"},
		{Status(9).String(), "invalid status"},
		{LE.String(), "<="}, {EQ.String(), "="}, {GE.String(), ">="}, {Sense(9).String(), "invalid sense"},
		{AtLower.String(), "at lower"}, {AtUpper.String(), "at upper"}, {Free.String(), "free"},
		{Basic.String(), "basic"}, {VarStatus(9).String(), "invalid place"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
