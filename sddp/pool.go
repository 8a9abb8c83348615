package sddp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
)

// Pool holds the cuts of every stage but the last, ordered by iteration and then by forward pass, without
// those that others cover. There is a list of cuts for each stage. A cut bounds the expected cost after the
// stage: if the stage ends with storage v, that cost is at least alpha + beta'v. With Options.MultiCut a stage has
// a list for each opening of the next stage, whose cuts bound the cost after the stage given that opening.
//
// A Pool that does not change is safe for concurrent use.
type Pool struct {
	reserv    int
	futures   futures
	lists     []cutList  // by stage and future
	selection *selection // of a training with cut selection, else nil
}

// cutList holds the cuts of a future, alpha and then beta for each, in consecutive parts. New cuts are
// appended to the last part; the cuts of the other parts never move.
type cutList struct {
	n     int // cuts in all parts
	parts [][]float64
}

// newPool returns a pool without cuts, with a list for each stage but the last.
func newPool(stages, reservoirs int) *Pool {
	return newPoolOf(expectedFutures(stages), reservoirs)
}

// newPoolOf returns a pool without cuts.
func newPoolOf(f futures, reservoirs int) *Pool {
	return &Pool{reserv: reservoirs, futures: f, lists: make([]cutList, f.total())}
}

// Stages returns the number of stages that have cuts.
//
// Not collective.
func (p *Pool) Stages() int { return len(p.futures) }

// Lists returns the range of the lists of a stage.
//
// Not collective.
func (p *Pool) Lists(stage int) (first, end int) {
	return p.futures.first(stage), p.futures.first(stage + 1)
}

// Len returns the number of cuts of a list, 0 for lists of the last stage.
//
// Not collective.
func (p *Pool) Len(list int) int {
	if list >= len(p.lists) {
		return 0
	}
	return p.lists[list].n
}

// Total returns the number of cuts of all lists.
//
// Not collective.
func (p *Pool) Total() int {
	n := 0
	for _, l := range p.lists {
		n += l.n
	}
	return n
}

// Cut returns cut i of a list. The caller must not modify beta.
//
// Not collective.
func (p *Pool) Cut(list, i int) (alpha float64, beta []float64) {
	width := 1 + p.reserv
	at := i * width
	for _, part := range p.lists[list].parts {
		if at < len(part) {
			cut := part[at : at+width : at+width]
			return cut[0], cut[1:]
		}
		at -= len(part)
	}
	panic("sddp: the list has no such cut")
}

// add appends cuts to a list, alpha and then beta for each.
func (p *Pool) add(list int, cuts []float64) {
	s := &p.lists[list]
	if s.parts == nil {
		s.parts = [][]float64{nil}
	}
	last := &s.parts[len(s.parts)-1]
	*last = append(*last, cuts...)
	s.n += len(cuts) / (1 + p.reserv)
}

// extend gives a list an empty slice to grow into, up to its capacity. Unused capacity of the previous
// part stays unused.
func (p *Pool) extend(list int, space []float64) {
	p.lists[list].parts = append(p.lists[list].parts, space)
}

// grow appends cuts of the given count of numbers within the memory of the list, and returns their
// slice. The node's leader fills it.
func (p *Pool) grow(list, numbers int) []float64 {
	s := &p.lists[list]
	last := &s.parts[len(s.parts)-1]
	at := len(*last)
	*last = (*last)[:at+numbers]
	s.n += numbers / (1 + p.reserv)
	return (*last)[at:]
}

// clone returns a pool with a copy of the cuts, without those that are idle.
func (p *Pool) clone() *Pool {
	out := newPoolOf(p.futures, p.reserv)
	width := 1 + p.reserv
	for t, s := range p.lists {
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

// lens returns the number of cuts of every list.
func (p *Pool) lens() []int {
	out := make([]int, len(p.lists))
	for t, s := range p.lists {
		out[t] = s.n
	}
	return out
}

// sameCut is by how much a cut must exceed another somewhere to differ from it, relative to the sum of
// the moduli of its terms, or theta to be violated, relative to alpha. Cuts of the same duals differ by
// some 1e-16, other cuts by 1e-9 and more.
const sameCut = 1e-13

// novel moves the cuts that are new to the front of cuts and returns them. A cut is new unless one of the
// list, or one before it, is nowhere lower while the state is between least and most.
func (p *Pool) novel(list int, cuts, least, most []float64) []float64 {
	width, n := 1+p.reserv, 0
	for rest := cuts; len(rest) > 0; rest = rest[width:] {
		cut := rest[:width]
		known := covered(cut, cuts[:n], least, most)
		for _, part := range p.lists[list].parts {
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
	out := newPoolOf(p.futures, p.reserv)
	for t, s := range p.lists {
		out.lists[t] = cutList{s.n, slices.Clone(s.parts)}
	}
	out.selection = p.selection.snapshot()
	return out
}

// copied returns a pool with a copy of the cuts, also of those that are idle.
func (p *Pool) copied() *Pool {
	out := p.snapshot()
	for t, s := range p.lists {
		out.lists[t].parts = [][]float64{slices.Concat(s.parts...)}
	}
	return out
}

// Value returns the lower bound of the cost after a stage that ends with storage v: the largest value
// of its cuts, at least 0. With a list for each opening it is the expectation of these.
//
// Not collective.
func (p *Pool) Value(stage int, v []float64) float64 {
	first, end := p.Lists(stage)
	sum := 0.0
	for list := first; list < end; list++ {
		best := 0.0
		for i := range p.Len(list) {
			alpha, beta := p.Cut(list, i)
			best = max(best, height(alpha, beta, v))
		}
		sum += p.futures[stage][list-first] * best
	}
	return sum
}

// mostViolated returns the cut of a list that exceeds theta at v by the most and by more than least and
// than rounding, the first one of equals, or -1. It skips cuts that are held or idle.
func (p *Pool) mostViolated(list int, v []float64, theta, least float64, held []bool) int {
	if list >= len(p.lists) {
		return -1
	}
	worst, i, width := -1, 0, 1+p.reserv
	for _, part := range p.lists[list].parts {
		for ; len(part) > 0; part = part[width:] {
			if !held[i] && !p.selection.isIdle(list, i) {
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

// SHA256 returns a hash, in hexadecimal, of the exact bits of all cuts in order: for each list the
// number of cuts as a 64-bit integer, then alpha and beta of each as 64-bit floats, little-endian.
//
// Not collective.
func (p *Pool) SHA256() string {
	h := sha256.New()
	var b []byte
	for t, s := range p.lists {
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
