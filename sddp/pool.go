package sddp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
)

// Pool holds the cuts of every stage but the last, in the order they were made: iteration by
// iteration, within one by forward pass. Cut i of stage t says that what is left to pay after the
// stage, when it ends with storage v, is at least alpha + beta'v in expectation.
type Pool struct {
	reserv int
	cuts   [][]float64 // per stage; alpha and then beta, one cut after the other
}

// newPool returns a pool without cuts.
func newPool(stages, reservoirs int) *Pool {
	return &Pool{reserv: reservoirs, cuts: make([][]float64, stages-1)}
}

// Stages returns the number of stages that have cuts.
func (p *Pool) Stages() int { return len(p.cuts) }

// Len returns the number of cuts of a stage, none for the last one.
func (p *Pool) Len(stage int) int {
	if stage >= len(p.cuts) {
		return 0
	}
	return len(p.cuts[stage]) / (1 + p.reserv)
}

// Total returns the number of cuts of all stages.
func (p *Pool) Total() int {
	n := 0
	for t := range p.cuts {
		n += p.Len(t)
	}
	return n
}

// Cut returns cut i of a stage. The caller must not change beta.
func (p *Pool) Cut(stage, i int) (alpha float64, beta []float64) {
	at := i * (1 + p.reserv)
	cut := p.cuts[stage][at : at+1+p.reserv : at+1+p.reserv]
	return cut[0], cut[1:]
}

// add appends cuts to a stage, each alpha and then beta.
func (p *Pool) add(stage int, cuts []float64) { p.cuts[stage] = append(p.cuts[stage], cuts...) }

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
	for t := range p.cuts {
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(p.Len(t)))
		for _, x := range p.cuts[t] {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
