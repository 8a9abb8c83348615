package lp

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// mps returns p in free MPS format. FREE on the first line keeps clp from guessing the format.
func (p *problem) mps() []byte {
	var b bytes.Buffer
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	b.WriteString("NAME P FREE\nROWS\n N obj\n")
	for i, sense := range p.sense {
		fmt.Fprintf(&b, " %c r%d\n", "LEG"[sense], i)
	}
	b.WriteString("COLUMNS\n")
	entries := make([]map[int]float64, len(p.cost)) // summed: MPS forbids duplicates
	order := make([][]int, len(p.cost))
	for i, cols := range p.cols {
		for k, j := range cols {
			if entries[j] == nil {
				entries[j] = map[int]float64{}
			}
			if _, ok := entries[j][i]; !ok {
				order[j] = append(order[j], i)
			}
			entries[j][i] += p.coefs[i][k]
		}
	}
	for j, c := range p.cost {
		fmt.Fprintf(&b, " x%d obj %s\n", j, num(c))
		for _, i := range order[j] {
			if v := entries[j][i]; v != 0 {
				fmt.Fprintf(&b, " x%d r%d %s\n", j, i, num(v))
			}
		}
	}
	b.WriteString("RHS\n")
	for i, v := range p.rhs {
		if v != 0 {
			fmt.Fprintf(&b, " rhs r%d %s\n", i, num(v))
		}
	}
	b.WriteString("BOUNDS\n")
	for j, lo := range p.lo {
		hi := p.hi[j]
		switch {
		case math.IsInf(lo, -1) && math.IsInf(hi, 1):
			fmt.Fprintf(&b, " FR bnd x%d\n", j)
			continue
		case math.IsInf(lo, -1):
			fmt.Fprintf(&b, " MI bnd x%d\n", j)
		default:
			fmt.Fprintf(&b, " LO bnd x%d %s\n", j, num(lo))
		}
		if !math.IsInf(hi, 1) {
			fmt.Fprintf(&b, " UP bnd x%d %s\n", j, num(hi))
		}
	}
	b.WriteString("ENDATA\n")
	return b.Bytes()
}

// glpsol asks GLPK whether p has an optimum, and for its objective.
func glpsol(t *testing.T, path, dir string, p *problem) (optimal bool, objective float64) {
	t.Helper()
	in, out := filepath.Join(dir, "p.mps"), filepath.Join(dir, "p.sol")
	if err := os.WriteFile(in, p.mps(), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := exec.Command(path, "--freemps", in, "--nopresol", "-w", out).CombinedOutput()
	if err != nil {
		t.Fatalf("glpsol: %v\n%s", err, log)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	// s bas ROWS COLUMNS PRIMAL DUAL OBJECTIVE, with f feasible, i and n infeasible, u undefined.
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 7 || f[0] != "s" || f[1] != "bas" {
			continue
		}
		switch {
		case f[4] == "f" && f[5] == "f":
			v, err := strconv.ParseFloat(f[6], 64)
			if err != nil {
				t.Fatal(err)
			}
			return true, v
		case f[4] == "n", f[4] == "i", f[4] == "f" && f[5] == "n":
			return false, 0
		}
	}
	t.Fatalf("glpsol: no outcome in\n%s\n%s", text, log)
	return false, 0
}

// clpProgram asks COIN-OR CLP whether p has an optimum, and for its objective.
func clpProgram(t *testing.T, path, dir string, p *problem) (optimal bool, objective float64) {
	t.Helper()
	in := filepath.Join(dir, "p.mps")
	if err := os.WriteFile(in, p.mps(), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := exec.Command(path, in, "-primaltolerance", "1e-9", "-dualtolerance", "1e-9", "-dualsimplex").CombinedOutput()
	if err != nil {
		t.Fatalf("clp: %v\n%s", err, log)
	}
	text := string(log)
	// The last line counts: others precede the clean-up after presolve.
	if at := strings.LastIndex(text, "Optimal objective "); at >= 0 {
		after := text[at+len("Optimal objective "):]
		v, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		return true, v
	}
	if !strings.Contains(text, "infeasible") { // also printed for unbounded programs
		t.Fatalf("clp: no outcome in\n%s", text)
	}
	return false, 0
}

// oraclePrograms returns programs of all kinds for an independent solver to judge.
func oraclePrograms(r *rand.Rand, count int) []*problem {
	var ps []*problem
	for k := range count {
		switch k % 4 {
		case 0:
			ps = append(ps, anything(r, 1+r.IntN(12), 1+r.IntN(10)))
		case 1:
			ps = append(ps, solvable(r, 5+r.IntN(40), 3+r.IntN(30), false))
		case 2:
			ps = append(ps, solvable(r, 5+r.IntN(40), 3+r.IntN(30), true))
		case 3:
			d := newDispatch(r)
			for range r.IntN(60) {
				d.addCut(r, 1, nil)
			}
			ps = append(ps, &d.problem)
		}
	}
	return ps
}

// agree compares the solver's answers with those of an independent one.
func agree(t *testing.T, mk maker, ps []*problem, ask func(p *problem) (bool, float64), digits float64) {
	t.Helper()
	seen := map[Status]int{}
	for k, p := range ps {
		s := p.load(mk)
		status := prove(t, fmt.Sprintf("program %d", k), p, s)
		// Other answers are proved already, and a presolver does not always distinguish infeasible from
		// unbounded.
		optimal, objective := ask(p)
		if (status == Optimal) != optimal {
			t.Errorf("program %d: got %v, want an optimum: %v\n%v", k, status, optimal, p)
			continue
		}
		seen[status]++
		if status == Optimal && !(math.Abs(s.Objective()-objective) <= digits*(1+math.Abs(objective))) {
			t.Errorf("program %d: objective %.17g, want %.17g\n%v", k, s.Objective(), objective, p)
		}
	}
	t.Logf("agreed: %v", seen)
}

func TestObjectivesEqualGLPK(t *testing.T) { each(t, testObjectivesEqualGLPK) }

func testObjectivesEqualGLPK(t *testing.T, mk maker) {
	path, dir := need.Program(t, "glpsol"), t.TempDir()
	agree(t, mk, oraclePrograms(rand.New(rand.NewPCG(15, 16)), sample(300)), func(p *problem) (bool, float64) {
		return glpsol(t, path, dir, p)
	}, 1e-7)
}

func TestObjectivesEqualCLP(t *testing.T) { each(t, testObjectivesEqualCLP) }

func testObjectivesEqualCLP(t *testing.T, mk maker) {
	path, dir := need.Program(t, "clp"), t.TempDir()
	agree(t, mk, oraclePrograms(rand.New(rand.NewPCG(17, 18)), sample(200)), func(p *problem) (bool, float64) {
		return clpProgram(t, path, dir, p)
	}, 1e-7)
}
