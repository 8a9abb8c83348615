package lp

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// readRecorded reads a program, and the basis from which it was solved, that a training of sddp met.
func readRecorded(t *testing.T, name string) (*problem, Basis) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cost, Lo []float64
		Hi       []*float64 // nil for none
		Columns  []VarStatus
		Rows     []struct {
			Sense Sense
			RHS   float64
			Place VarStatus
			Cols  []int
			Coefs []float64
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	p, b := &problem{}, Basis{Cols: file.Columns}
	for j, c := range file.Cost {
		hi := Inf
		if file.Hi[j] != nil {
			hi = *file.Hi[j]
		}
		p.column(c, file.Lo[j], hi)
	}
	for _, r := range file.Rows {
		p.row(r.Sense, r.RHS, r.Cols, r.Coefs)
		b.Rows = append(b.Rows, r.Place)
	}
	return p, b
}

// TestNearlyParallelCutsDoNotCycle solves a program of sddp/cases/brazil4 in which three cuts differ in two
// coefficients, by 15 of 700 000. With reduced costs whose rounding was taken for too small, the primal
// method went to and fro between two of them until the iteration limit.
func TestNearlyParallelCutsDoNotCycle(t *testing.T) {
	each(t, testNearlyParallelCutsDoNotCycle)
}

func testNearlyParallelCutsDoNotCycle(t *testing.T, mk maker) {
	p, basis := readRecorded(t, "testdata/parallel-cuts.json")
	const want = 16928533154.474022 // by Clp 1.17
	for _, warm := range []bool{true, false} {
		s := p.load(mk)
		if warm {
			if err := s.SetBasis(basis); err != nil {
				t.Fatal(err)
			}
		}
		status := prove(t, "recorded program", p, s)
		if status != Optimal || math.Abs(s.Objective()-want) > 1e-12*want {
			t.Errorf("warm %v: %v with objective %.17g, want %.17g", warm, status, s.Objective(), want)
		}
		if warm && s.Iterations() > 10 || s.Iterations() > 200 {
			t.Errorf("warm %v: %d iterations", warm, s.Iterations())
		}
	}
}
