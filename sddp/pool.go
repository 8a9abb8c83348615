package sddp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
)

// Pool holds the cuts of every stage but the last, in the order they were made: iteration by
// iteration, within one by forward pass. Cut i of stage t says that what is left to pay after the
// stage, when it ends with storage v, is at least alpha + beta'v in expectation.
type Pool struct {
	reserv int
	stages []stageCuts
}

// stageCuts are the cuts of a stage: alpha and then beta, one cut after the other, in parts that are
// one behind the other. All cuts but those of the last part stay where they are when there are more.
type stageCuts struct {
	n     int // cuts in all parts
	parts [][]float64
}

// newPool returns a pool without cuts.
func newPool(stages, reservoirs int) *Pool {
	return &Pool{reserv: reservoirs, stages: make([]stageCuts, stages-1)}
}

// Stages returns the number of stages that have cuts.
func (p *Pool) Stages() int { return len(p.stages) }

// Len returns the number of cuts of a stage, none for the last one.
func (p *Pool) Len(stage int) int {
	if stage >= len(p.stages) {
		return 0
	}
	return p.stages[stage].n
}

// Total returns the number of cuts of all stages.
func (p *Pool) Total() int {
	n := 0
	for t := range p.stages {
		n += p.Len(t)
	}
	return n
}

// Cut returns cut i of a stage. The caller must not change beta.
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

// add appends cuts to a stage, each alpha and then beta.
func (p *Pool) add(stage int, cuts []float64) {
	s := &p.stages[stage]
	if s.parts == nil {
		s.parts = [][]float64{nil}
	}
	last := &s.parts[len(s.parts)-1]
	*last = append(*last, cuts...)
	s.n += len(cuts) / (1 + p.reserv)
}

// extend gives a stage memory to grow into: an empty slice, and its capacity. What the part before
// it still has is left.
func (p *Pool) extend(stage int, space []float64) {
	p.stages[stage].parts = append(p.stages[stage].parts, space)
}

// grow appends cuts of so many numbers in the memory that the stage has, and returns the place,
// which may have been filled by another rank or is about to be.
func (p *Pool) grow(stage, numbers int) []float64 {
	s := &p.stages[stage]
	last := &s.parts[len(s.parts)-1]
	at := len(*last)
	*last = (*last)[:at+numbers]
	s.n += numbers / (1 + p.reserv)
	return (*last)[at:]
}

// clone returns a pool with the same cuts in memory of its own.
func (p *Pool) clone() *Pool {
	out := newPool(len(p.stages)+1, p.reserv)
	for t, s := range p.stages {
		if all := slices.Concat(s.parts...); len(all) > 0 {
			out.stages[t] = stageCuts{s.n, [][]float64{all}}
		}
	}
	return out
}

// holds reports whether every stage has so many cuts.
func (p *Pool) holds(n int) bool {
	for _, s := range p.stages {
		if s.n < n {
			return false
		}
	}
	return true
}

// snapshot returns a pool with the cuts there are, in the same memory.
func (p *Pool) snapshot() *Pool {
	out := newPool(len(p.stages)+1, p.reserv)
	for t, s := range p.stages {
		out.stages[t] = stageCuts{s.n, slices.Clone(s.parts)}
	}
	return out
}

// Value returns what the cuts of a stage say is left to pay from storage v: the largest of them,
// and at least 0.
func (p *Pool) Value(stage int, v []float64) float64 {
	best := 0.0
	for i := range p.Len(stage) {
		alpha, beta := p.Cut(stage, i)
		best = max(best, height(alpha, beta, v))
	}
	return best
}

// mostViolated returns the cut of a stage that is the most above theta at v, by more than least: the
// first of equals, and -1 if there is none. It passes over cuts that are held.
func (p *Pool) mostViolated(stage int, v []float64, theta, least float64, held []bool) int {
	if stage >= len(p.stages) {
		return -1
	}
	worst, i, width := -1, 0, 1+p.reserv
	for _, part := range p.stages[stage].parts {
		for ; len(part) > 0; part = part[width:] {
			if !held[i] {
				if above := height(part[0], part[1:width], v) - theta; above > least {
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

// SHA256 returns a hash of the exact bits of all cuts in their order, in hexadecimal: per stage
// the number of cuts, then alpha and beta of each as little-endian IEEE 754 doubles.
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
