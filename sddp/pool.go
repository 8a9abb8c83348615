package sddp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
)

// Pool holds the cuts of every stage but the last, ordered by iteration and then by forward pass, without
// those that others cover. Cut i
// of stage t bounds the expected cost after the stage: if the stage ends with storage v, that cost is
// at least alpha + beta'v.
//
// A Pool that does not change is safe for concurrent use.
type Pool struct {
	reserv    int
	stages    []stageCuts
	selection *selection // of a training with cut selection, else nil
}

// stageCuts holds the cuts of a stage, alpha and then beta for each, in consecutive parts. New cuts are
// appended to the last part; the cuts of the other parts never move.
type stageCuts struct {
	n     int // cuts in all parts
	parts [][]float64
}

// newPool returns a pool without cuts.
func newPool(stages, reservoirs int) *Pool {
	return &Pool{reserv: reservoirs, stages: make([]stageCuts, stages-1)}
}

// Stages returns the number of stages that have cuts.
//
// Local.
func (p *Pool) Stages() int { return len(p.stages) }

// Len returns the number of cuts of a stage, 0 for the last stage.
//
// Local.
func (p *Pool) Len(stage int) int {
	if stage >= len(p.stages) {
		return 0
	}
	return p.stages[stage].n
}

// Total returns the number of cuts of all stages.
//
// Local.
func (p *Pool) Total() int {
	n := 0
	for t := range p.stages {
		n += p.Len(t)
	}
	return n
}

// Cut returns cut i of a stage. The caller must not modify beta.
//
// Local.
func (p *Pool) Cut(stage, i int) (alpha float64, beta []float64) {
	width := 1 + p.reserv
	at := i * width
	for _, part := range p.stages[stage].parts {
		if at < len(part) {
			cut := part[at : at+width : at+width]
			return cut[0], cut[1:]
		}
		at -= len(part)
	}
	panic("sddp: the stage has no such cut")
}

// add appends cuts to a stage, alpha and then beta for each.
func (p *Pool) add(stage int, cuts []float64) {
	s := &p.stages[stage]
	if s.parts == nil {
		s.parts = [][]float64{nil}
	}
	last := &s.parts[len(s.parts)-1]
	*last = append(*last, cuts...)
	s.n += len(cuts) / (1 + p.reserv)
}

// extend gives a stage an empty slice to grow into, up to its capacity. Unused capacity of the previous
// part stays unused.
func (p *Pool) extend(stage int, space []float64) {
	p.stages[stage].parts = append(p.stages[stage].parts, space)
}

// grow appends cuts of the given count of numbers within the memory of the stage, and returns their
// slice. The node's leader fills it.
func (p *Pool) grow(stage, numbers int) []float64 {
	s := &p.stages[stage]
	last := &s.parts[len(s.parts)-1]
	at := len(*last)
	*last = (*last)[:at+numbers]
	s.n += numbers / (1 + p.reserv)
	return (*last)[at:]
}

// clone returns a pool with a copy of the cuts, without those that are idle.
func (p *Pool) clone() *Pool {
	out := newPool(len(p.stages)+1, p.reserv)
	width := 1 + p.reserv
	for t, s := range p.stages {
		all := slices.Concat(s.parts...)
		kept := all[:0]
		for i := range s.n {
			if !p.selection.isIdle(t, i) {
				kept = append(kept, all[i*width:(i+1)*width]...)
			}
		}
		if len(kept) > 0 {
			out.add(t, kept)
		}
	}
	return out
}

// lens returns the number of cuts of every stage.
func (p *Pool) lens() []int {
	out := make([]int, len(p.stages))
	for t, s := range p.stages {
		out[t] = s.n
	}
	return out
}

// holds reports whether every stage has at least n cuts.
func (p *Pool) holds(n []int) bool {
	for t, s := range p.stages {
		if s.n < n[t] {
			return false
		}
	}
	return true
}

// sameCut is by how much a cut must exceed another somewhere to differ from it, relative to the sum of
// the moduli of its terms, or theta to be violated, relative to alpha. Cuts of the same duals differ by
// some 1e-16, other cuts by 1e-9 and more.
const sameCut = 1e-13

// novel moves the cuts that are new to the front of cuts and returns them. A cut is new unless one of the
// stage, or one before it, is nowhere lower while the state is between least and most.
func (p *Pool) novel(stage int, cuts, least, most []float64) []float64 {
	width, n := 1+p.reserv, 0
	for rest := cuts; len(rest) > 0; rest = rest[width:] {
		cut := rest[:width]
		known := covered(cut, cuts[:n], least, most)
		for _, part := range p.stages[stage].parts {
			known = known || covered(cut, part, least, most)
		}
		if !known {
			n += copy(cuts[n:], cut)
		}
	}
	return cuts[:n]
}

// covered reports whether one of the cuts is nowhere lower than cut, but for rounding.
func covered(cut, cuts, least, most []float64) bool {
	tol := math.Abs(cut[0])
	for r, b := range cut[1:] {
		tol += math.Abs(b) * most[r]
	}
	tol *= sameCut
	for ; len(cuts) > 0; cuts = cuts[len(cut):] {
		above := cut[0] - cuts[0] // at the state where it is largest
		for r, b := range cut[1:] {
			above += max((b-cuts[1+r])*most[r], (b-cuts[1+r])*least[r])
		}
		if above <= tol {
			return true
		}
	}
	return false
}

// snapshot returns a pool with the current cuts, in the same memory.
func (p *Pool) snapshot() *Pool {
	out := newPool(len(p.stages)+1, p.reserv)
	for t, s := range p.stages {
		out.stages[t] = stageCuts{s.n, slices.Clone(s.parts)}
	}
	out.selection = p.selection.snapshot()
	return out
}

// Value returns the lower bound of the cost after a stage that ends with storage v: the largest value
// of its cuts, at least 0.
//
// Local.
func (p *Pool) Value(stage int, v []float64) float64 {
	best := 0.0
	for i := range p.Len(stage) {
		alpha, beta := p.Cut(stage, i)
		best = max(best, height(alpha, beta, v))
	}
	return best
}

// mostViolated returns the cut of a stage that exceeds theta at v by the most and by more than least and
// than rounding, the first one of equals, or -1. It skips cuts that are held or idle.
func (p *Pool) mostViolated(stage int, v []float64, theta, least float64, held []bool) int {
	if stage >= len(p.stages) {
		return -1
	}
	worst, i, width := -1, 0, 1+p.reserv
	for _, part := range p.stages[stage].parts {
		for ; len(part) > 0; part = part[width:] {
			if !held[i] && !p.selection.isIdle(stage, i) {
				if above := height(part[0], part[1:width], v) - theta; above > least && above > sameCut*math.Abs(part[0]) {
					worst, least = i, above
				}
			}
			i++
		}
	}
	return worst
}

// height returns alpha + beta'v.
func height(alpha float64, beta, v []float64) float64 {
	h := alpha
	for r, b := range beta {
		h += b * v[r]
	}
	return h
}

// SHA256 returns a hash, in hexadecimal, of the exact bits of all cuts in order: for each stage the
// number of cuts as a 64-bit integer, then alpha and beta of each as 64-bit floats, little-endian.
//
// Local.
func (p *Pool) SHA256() string {
	h := sha256.New()
	var b []byte
	for t, s := range p.stages {
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(p.Len(t)))
		for _, part := range s.parts {
			for _, x := range part {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
			}
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
