package agree

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// sim is a set of members and the links between them. It checks after every step what must always
// hold of what members have decided.
//
// Messages of one step are put on all links at once: a member that ends while it is sending is one
// whose last messages some links drop, which lose may do with any number of them.
type sim struct {
	n       int
	members []*Agreement
	crashed []bool
	links   [][]string // of from*n+to: what is under way
	outcome []*Record  // of who has decided, also if it has crashed since
	rounds  int        // the most that anyone took
}

// input is member i's: its bit is missing in the flags, so that the outcome tells who is in it.
func input(i, n int, equal bool) Record {
	r := Record{Kinds: 1, Number: uint32(i), Flags: ^uint64(1 << i), Lost: NewSet(n), Gone: NewSet(n)}
	if equal {
		r.Number, r.Flags = 7, 1
	}
	return r
}

func newSim(n int, equal bool, dead func(member int) Set) *sim {
	s := &sim{n: n, members: make([]*Agreement, n), crashed: make([]bool, n), links: make([][]string, n*n), outcome: make([]*Record, n)}
	for i := range n {
		d := NewSet(n)
		if dead != nil {
			d = dead(i)
		}
		s.members[i] = New(i, n, n, 1, input(i, n, equal), d)
		s.flush(i)
	}
	return s
}

// flush puts the messages that member i has to send on its links, and records its decision.
func (s *sim) flush(i int) {
	a := s.members[i]
	if msg, to := a.Next(); msg != nil {
		for _, m := range to {
			s.links[i*s.n+m] = append(s.links[i*s.n+m], string(msg))
		}
	}
	if r, ok := a.Decided(); ok && s.outcome[i] == nil {
		own := Record{r.Kinds, r.Number, r.Flags, slices.Clone(r.Lost), slices.Clone(r.Gone)}
		s.outcome[i] = &own
	}
	s.rounds = max(s.rounds, int(a.round))
}

// A step is one thing that can happen.
type step struct {
	what     byte // d: to receives from from; c: to crashes; l: to learns that from has, and gets no more from it
	from, to int
}

func (t step) String() string { return fmt.Sprintf("%c%d>%d", t.what, t.from, t.to) }

// steps lists what can happen, crashes only if there may be more.
func (s *sim) steps(crashes bool) (all []step) {
	for to := range s.n {
		if s.crashed[to] {
			continue
		}
		if crashes {
			all = append(all, step{'c', to, to})
		}
		for from := range s.n {
			a := s.members[to]
			if from == to || a.decided {
				continue
			}
			if a.Wants(from) && len(s.links[from*s.n+to]) > 0 {
				all = append(all, step{'d', from, to})
			}
			if s.crashed[from] && !a.dead.Has(from) {
				all = append(all, step{'l', from, to})
			}
		}
	}
	return all
}

func (s *sim) take(t step) error {
	a := s.members[t.to]
	switch link := &s.links[t.from*s.n+t.to]; t.what {
	case 'c':
		s.crashed[t.to] = true
		for from := range s.n {
			s.links[from*s.n+t.to] = nil
		}
		return nil
	case 'd':
		msg := (*link)[0]
		*link = (*link)[1:]
		if err := a.Receive(t.from, []byte(msg)); err != nil {
			return fmt.Errorf("member %d: %w", t.to, err)
		}
	case 'l':
		*link = nil
		a.Lose(t.from)
	}
	s.flush(t.to)
	return s.uniform()
}

// uniform checks agreement and validity. Members that live agree on who is gone too.
func (s *sim) uniform() error {
	var first, alive *Record
	for i, r := range s.outcome {
		if r == nil {
			continue
		}
		if first == nil {
			first = r
		}
		if r.Kinds != first.Kinds || r.Number != first.Number || r.Flags != first.Flags || !slices.Equal(r.Lost, first.Lost) {
			return fmt.Errorf("member %d has decided %+v, another %+v", i, *r, *first)
		}
		if !s.crashed[i] {
			if alive != nil && !slices.Equal(r.Gone, alive.Gone) {
				return fmt.Errorf("member %d has decided %+v, another that lives %+v", i, *r, *alive)
			}
			alive = r
		}
		for m := range s.n {
			if in := input(m, s.n, false); !r.Gone.Has(m) && r.Flags != 1 && r.Flags&^in.Flags != 0 {
				return fmt.Errorf("member %d has decided without the flags of %d, which is not gone: %+v", i, m, *r)
			}
		}
		if r.Gone.Has(i) {
			return fmt.Errorf("member %d has decided that it is gone itself: %+v", i, *r)
		}
		if r.Flags != 1 && ^r.Flags>>s.n != 0 {
			return fmt.Errorf("flags that nobody brought: %b", r.Flags)
		}
	}
	return nil
}

// finished checks that all members that live have decided, and in how many rounds.
func (s *sim) finished() error {
	crashes := 0
	for i := range s.n {
		if s.crashed[i] {
			crashes++
		} else if s.outcome[i] == nil {
			return fmt.Errorf("member %d waits for ever", i)
		}
	}
	if most := crashes + 2; s.rounds > most {
		return fmt.Errorf("%d rounds with %d crashes, want %d at most", s.rounds, crashes, most)
	}
	return nil
}

func (s *sim) clone() *sim {
	c := &sim{n: s.n, members: make([]*Agreement, s.n), crashed: slices.Clone(s.crashed), links: slices.Clone(s.links), outcome: slices.Clone(s.outcome), rounds: s.rounds}
	for i, a := range s.members {
		b := *a
		b.rec.Lost, b.rec.Gone, b.dead, b.received = slices.Clone(a.rec.Lost), slices.Clone(a.rec.Gone), slices.Clone(a.dead), slices.Clone(a.received)
		c.members[i] = &b
	}
	for i := range c.links {
		c.links[i] = slices.Clip(c.links[i])
	}
	return c
}

// key tells states apart in which different things can happen.
func (s *sim) key(left int) string {
	b := []byte{byte(left), byte(s.rounds)}
	for i, a := range s.members {
		b = append(b, byte(a.round))
		for _, yes := range []bool{s.crashed[i], a.same, a.decided} {
			if yes {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
		if s.crashed[i] && s.outcome[i] == nil {
			continue // but for what is on its links, nothing of it matters
		}
		b = a.rec.appendTo(b, a.dead)
		b = binary.LittleEndian.AppendUint64(b, a.received[0])
	}
	for _, l := range s.links {
		b = append(b, byte(len(l)))
		for _, m := range l {
			b = append(b, m...)
		}
	}
	return string(b)
}

// explore tries everything that can happen, with at most crashes crashes.
func explore(t *testing.T, n, crashes int, equal bool) (states int) {
	type place struct {
		s     *sim
		left  int
		steps []step // so far
	}
	seen := map[string]bool{}
	todo := []place{{newSim(n, equal, nil), crashes, nil}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		moves := p.s.steps(p.left > 0)
		if !slices.ContainsFunc(moves, func(m step) bool { return m.what != 'c' }) {
			if err := p.s.finished(); err != nil {
				t.Fatalf("%v\nafter %v", err, p.steps)
			}
		}
		for _, m := range moves {
			s, left := p.s.clone(), p.left
			if m.what == 'c' {
				left--
			}
			path := append(slices.Clip(p.steps), m)
			if err := s.take(m); err != nil {
				t.Fatalf("%v\nafter %v", err, path)
			}
			if k := s.key(left); !seen[k] {
				seen[k] = true
				todo = append(todo, place{s, left, path})
			}
		}
	}
	return len(seen)
}
