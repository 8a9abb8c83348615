package lp

import (
	"encoding/binary"
	"math"
	"testing"
)

// reader turns fuzz input into numbers; at the end it yields zeros.
type reader []byte

func (r *reader) byte() byte {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return b
}

// number returns a small whole number, a half, or one of the values at which arithmetic is odd.
func (r *reader) number() float64 {
	switch b := r.byte(); {
	case b < 200:
		return float64(int(b)-100) / 2
	case b < 210:
		return math.Ldexp(float64(int8(r.byte())), int(int8(r.byte()))/4)
	case b < 220:
		var bits [8]byte
		for k := range bits {
			bits[k] = r.byte()
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(bits[:]))
	case b < 225:
		return Inf
	case b < 230:
		return -Inf
	}
	return 0
}

// tame reports whether proofs to kktTol are possible: all numbers are zero or between 1e-3 and
// 1e3 in modulus.
func (p *problem) tame() bool {
	ok := func(vs []float64) bool {
		for _, v := range vs {
			if a := math.Abs(v); a != 0 && !math.IsInf(v, 0) && !(a >= 1e-3 && a <= 1e3) {
				return false
			}
		}
		return true
	}
	good := ok(p.cost) && ok(p.lo) && ok(p.hi) && ok(p.rhs)
	for _, c := range p.coefs {
		good = good && ok(c)
	}
	return good
}

// FuzzSolve builds a program, changes it, and solves it warm. Solve must end without a panic, prove its
// answer for tame programs, and give the same bits without its history.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{2, 2, 110, 100, 150, 90, 100, 220, 0, 120, 0, 102, 104, 2, 90, 1, 100, 102})
	f.Add([]byte{1, 0, 90, 225, 220})
	f.Add([]byte{3, 3, 100, 225, 220, 100, 225, 220, 98, 225, 220})
	f.Add([]byte{4, 2, 98, 100, 220, 40, 100, 220, 99, 100, 220, 88, 100, 220, 0, 100, 102, 60, 99, 118, 0, 100, 104, 40, 99, 106})
	f.Fuzz(func(t *testing.T, data []byte) {
		each(t, func(t *testing.T, mk maker) { fuzzSolve(t, mk, data) })
	})
}

func fuzzSolve(t *testing.T, mk maker, data []byte) {
	r := reader(data)
	p := &problem{}
	n, m := int(r.byte()%8), int(r.byte()%8)
	for range n {
		p.column(r.number(), r.number(), r.number())
	}
	for range m {
		coefs := make([]float64, n)
		sense, rhs := Sense(r.byte()%3), r.number()
		for j := range coefs {
			coefs[j] = r.number()
		}
		p.dense(sense, rhs, coefs...)
	}
	s := p.load(mk)
	for range 3 {
		fresh := p.load(mk)
		if err := fresh.SetBasis(s.Basis(Basis{})); err != nil {
			t.Fatal(err)
		}
		status, err := s.Solve()
		again, errAgain := fresh.Solve()
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("%v with a past, %v without", err, errAgain)
		}
		if err != nil {
			return
		}
		a, b := bits(s, status), bits(fresh, again)
		for k := range a {
			if a[k] != b[k] {
				t.Fatalf("result %d: %#x with a past, %#x without\n%v", k, a[k], b[k], p)
			}
		}
		if p.tame() {
			prove(t, "tame program", p, s)
		}
		if n > 0 {
			j := int(r.byte()) % n
			p.cost[j], p.lo[j], p.hi[j] = r.number(), r.number(), r.number()
			s.SetCost(j, p.cost[j])
			s.SetBounds(j, p.lo[j], p.hi[j])
		}
		if m > 0 {
			i := int(r.byte()) % m
			p.rhs[i] = r.number()
			s.SetRHS(i, p.rhs[i])
		}
		if r.byte()%4 == 0 && m > 0 {
			m--
			p.sense, p.rhs, p.cols, p.coefs = p.sense[:m], p.rhs[:m], p.cols[:m], p.coefs[:m]
			s.Truncate(m)
		}
	}
}
