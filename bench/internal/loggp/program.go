package loggp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/internal/coll"
)

// Program is what the ranks do: the part of their schedules that takes time.
//
// It has either all ranks or the first ones of a symmetric program: the ranks are numbered so that all
// blocks of as many ranks do the same, if the ranks they send to and receive from are counted from their
// own rank on, modulo the number of ranks, or as bits that are different. Equal ranks take equal time.
// So one block stands for all, and a message to another block arrives at the same time as that of
// another block arrives at this one.
type Program struct {
	n     int
	ranks []track
}

// track is the part of one rank.
type track struct {
	ops    []op
	rounds []round
}

// op is a message: to a rank, or from one.
type op struct {
	to    int32 // of a send: the index in Program.ranks
	on    int32 // which of the sequences of messages to that rank it belongs to
	bytes int
	far   bool // the other rank is on another node
}

// round has the ends of a round's sends and receives in ops, and the bytes of its local work.
type round struct {
	sends, recvs    int32
	copies, reduces int
}

// way is how the other ranks of a program follow from the first ones.
type way int

const (
	all    way = iota // not at all
	shift             // by adding, modulo n
	mirror            // by exclusive or
)

// ErrLarge says that a program has too many messages.
var ErrLarge = errors.New("too many messages to simulate")

// NewProgram returns the program of n ranks with the given schedules, on nodes of perNode ranks. It calls
// build for few ranks only if the program is symmetric. If it is not, and has more than limit messages, the
// error is ErrLarge.
func NewProgram(n, perNode, limit int, build func(rank int) (*coll.Schedule, error)) (*Program, error) {
	if n%perNode == 0 {
		for _, w := range []way{shift, mirror} {
			p, err := symmetric(n, perNode, w, build)
			if p != nil || err != nil {
				return p, err
			}
		}
	}
	return every(n, perNode, limit, build)
}

// every returns the program of all ranks.
func every(n, perNode, limit int, build func(rank int) (*coll.Schedule, error)) (*Program, error) {
	p := &Program{n: n, ranks: make([]track, n)}
	messages := 0
	for r := range n {
		s, err := build(r)
		if err != nil {
			return nil, err
		}
		p.ranks[r] = newTrack(s, r, n, perNode, n, all)
		if messages += len(p.ranks[r].ops); messages/2 > limit || r == 1 && n/2*len(p.ranks[r].ops)/2 > limit {
			return nil, fmt.Errorf("%s of %d ranks: %w", s.Algorithm, n, ErrLarge)
		}
	}
	return p, nil
}

// symmetric returns the program of the first block of ranks if a sample of the other blocks does the same,
// else nil.
func symmetric(n, block int, w way, build func(rank int) (*coll.Schedule, error)) (*Program, error) {
	if n <= block || w == mirror && n&(n-1) != 0 {
		return nil, nil
	}
	p := &Program{n: n, ranks: make([]track, block)}
	blocks := n / block
	for i, b := range []int{0, blocks - 1, blocks / 2, 1, blocks / 3, blocks / 5} {
		for r := range block {
			s, err := build(b*block + r)
			if err != nil {
				return nil, err
			}
			t := newTrack(s, b*block+r, n, block, block, w)
			if i == 0 {
				p.ranks[r] = t
			} else if !slices.EqualFunc(t.rounds, p.ranks[r].rounds, sameWork) || !slices.EqualFunc(t.ops, p.ranks[r].ops, sameMessage) {
				return nil, nil
			}
		}
	}
	return p, nil
}

// near reports whether two lengths are the same but for what is left over when a vector is divided.
func near(a, b int) bool { return a-b <= 64 && b-a <= 64 }

func sameMessage(a, b op) bool {
	same := near(a.bytes, b.bytes)
	a.bytes = b.bytes
	return same && a == b
}

func sameWork(a, b round) bool {
	return a.sends == b.sends && a.recvs == b.recvs && near(a.copies, b.copies) && near(a.reduces, b.reduces)
}

// newTrack returns the part of a rank.
func newTrack(s *coll.Schedule, rank, n, perNode, block int, w way) track {
	var t track
	for _, r := range s.Rounds {
		var x round
		for _, kind := range []coll.Kind{coll.SendTo, coll.RecvFrom} {
			for _, a := range r.Comm {
				if a.Kind != kind {
					continue
				}
				o := op{bytes: a.A.N, far: a.Peer/perNode != rank/perNode}
				from, to := rank, a.Peer
				if kind == coll.RecvFrom {
					o.bytes, from, to = a.Dst.N, to, from
				}
				o.to = int32(to % block)
				switch w {
				case all:
					o.on = int32(from)
				case shift:
					o.on = int32((to - from + n) % n)
				case mirror:
					o.on = int32(to ^ from)
				}
				t.ops = append(t.ops, o)
			}
			if kind == coll.SendTo {
				x.sends = int32(len(t.ops))
			}
		}
		x.recvs = int32(len(t.ops))
		for _, a := range r.Local {
			if a.Kind == coll.Copy {
				x.copies += a.Dst.N
			} else {
				x.reduces += a.Dst.N
			}
		}
		t.rounds = append(t.rounds, x)
	}
	return t
}
