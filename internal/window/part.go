package window

import (
	"bytes"
	"sync"

	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Part is a part of a window, whose elements several ranks update at once, and its lock.
//
// An update exchanges the 8-byte words in which its elements lie. So ranks that map the memory need no lock, and a
// rank that dies cannot leave a lock behind. Elements of more than 8 bytes have locks, in the head.
type Part struct {
	head  *head
	bytes []byte
	words []word.Uint64
}

const (
	stripes    = 64 // how many locks elements of more than 8 bytes share
	blockWords = 32 // the most words that one call of an Update computes
)

// newPart returns the part of n bytes at the beginning of mem, which has at least a whole number of words for it.
func newPart(h *head, mem []byte, n int) Part {
	return Part{h, mem[:n:n], view.Of[word.Uint64](mem[:roundUp(n, 8)])}
}

// Here reports whether this process has mapped the part.
func (p *Part) Here() bool { return p.head != nil }

// All returns the bytes of the part.
func (p *Part) All() []byte { return p.bytes }

// Bytes returns n bytes of the part.
func (p *Part) Bytes(at, n int) []byte { return p.bytes[at : at+n : at+n] }

// single reports whether n bytes are an element within a word, which is read and written at once.
func single(at, n int) bool { return (n == 8 || n == 4 || n == 2 || n == 1) && at%n == 0 }

// Put writes bytes, atomically if they are one element of 1, 2, 4 or 8 bytes.
func (p *Part) Put(at int, in []byte) {
	switch n := len(in); {
	case n == 8 && at%8 == 0:
		p.words[at/8].Store(view.Of[uint64](in)[0])
	case single(at, n):
		w := &p.words[at/8]
		for {
			old := w.Load()
			with := old
			copy(view.Bytes(view.One(&with))[at%8:], in)
			if w.CompareAndSwap(old, with) {
				return
			}
		}
	default:
		word.Copy(p.bytes[at:at+n], in)
	}
}

// Get reads bytes, atomically if they are one element of 1, 2, 4 or 8 bytes.
func (p *Part) Get(at int, out []byte) {
	n := len(out)
	if !single(at, n) {
		word.Copy(out, p.bytes[at:at+n])
		return
	}
	w := p.words[at/8].Load()
	copy(out, view.Bytes(view.One(&w))[at%8:])
}

// Update is the function of a reduction, as in backend.Op: it sets dst to the combination of a and b.
type Update = func(dst, a, b []byte)

// scratch is what an update computes with.
type scratch struct{ old, with [blockWords]uint64 }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Reduce combines elements of size bytes with those of in, each atomically. If old is not nil, it receives what the
// elements were. old may be in. A wait for a lock ends with the error of expired.
func (p *Part) Reduce(f Update, size, at int, in, old []byte, expired func() error) error {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	for len(in) > 0 {
		n := min(len(in), blockWords*8-at%8)
		if size > 8 {
			n = size
		}
		var before []byte
		if old != nil {
			before, old = old[:n], old[n:]
		}
		if size > 8 {
			lock, err := p.stripe(at, expired)
			if err != nil {
				return err
			}
			with := view.Bytes(s.with[:])[:n]
			word.Reads(p.bytes[at : at+n])
			f(with, p.bytes[at:at+n], in[:n])
			copy(before, p.bytes[at:at+n])
			word.Copy(p.bytes[at:at+n], with)
			p.release(lock)
		} else {
			p.reduceWords(f, s, at, in[:n], before)
		}
		in, at = in[n:], at+n
	}
	return nil
}

// reduceWords combines the elements in a block of words. One call of f computes all of them. A word that another
// rank has changed meanwhile is computed again.
func (p *Part) reduceWords(f Update, s *scratch, at int, in, old []byte) {
	lo, hi := at%8, at%8+len(in)
	words := p.words[at/8 : (at+len(in)+7)/8]
	was, with := view.Bytes(s.old[:]), view.Bytes(s.with[:])
	for i := range words {
		s.old[i] = words[i].Load()
	}
	s.with = s.old
	f(with[lo:hi], was[lo:hi], in)
	for i := range words {
		from, to := max(lo, 8*i), min(hi, 8*i+8)
		for !words[i].CompareAndSwap(s.old[i], s.with[i]) {
			s.old[i] = words[i].Load()
			s.with[i] = s.old[i]
			f(with[from:to], was[from:to], in[from-lo:to-lo])
		}
		if old != nil {
			copy(old[from-lo:to-lo], was[from:to])
		}
	}
}

// CompareSwap sets an element to with if its bytes are those of old, and stores what it was in was.
func (p *Part) CompareSwap(at int, old, with, was []byte, expired func() error) error {
	n := len(old)
	if n > 8 {
		lock, err := p.stripe(at, expired)
		if err != nil {
			return err
		}
		word.Copy(was, p.bytes[at:at+n])
		if bytes.Equal(was, old) {
			word.Copy(p.bytes[at:at+n], with)
		}
		p.release(lock)
		return nil
	}
	w := &p.words[at/8]
	for {
		x := w.Load()
		y := x
		copy(was, view.Bytes(view.One(&x))[at%8:])
		if !bytes.Equal(was, old) {
			return nil
		}
		copy(view.Bytes(view.One(&y))[at%8:], with)
		if w.CompareAndSwap(x, y) {
			return nil
		}
	}
}
