//go:build cgo && linux

package mpi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// meetings is a job whose ranks meet: one goroutine of each rank for each meeting, and the messages under way.
type meetings struct {
	ranks, goroutines int
	comes             int // how often each goroutine comes until it has made its call
	leaves            int // how often goroutines leave
	turns             []*turns
	links             [][][]byte // of from*ranks+to
	parts             []*part    // of rank*goroutines+meeting; nil: not in the meeting
	came              []int
	made              []bool
	holder            []int // the goroutine that has a rank's turn, -1: none
	excluded          bool  // one has called without
}

func newMeetings(ranks, goroutines, comes, leaves int, ordered bool) *meetings {
	s := &meetings{ranks: ranks, goroutines: goroutines, comes: comes, leaves: leaves, links: make([][][]byte, ranks*ranks),
		parts: make([]*part, ranks*goroutines), came: make([]int, ranks*goroutines), made: make([]bool, ranks*goroutines)}
	for r := range ranks {
		t := newTurns(r, ordered, func(to int, m []byte) bool {
			s.links[r*ranks+to] = append(s.links[r*ranks+to], m)
			return true
		})
		s.turns, s.holder = append(s.turns, &t), append(s.holder, -1)
	}
	return s
}

// event is something that can happen.
type event struct {
	what byte // d: to receives a message of from; of a goroutine: c: comes, t: takes its turn, l: leaves, e: notes its end
	a, b int  // from and to, or rank and goroutine
}

func (e event) String() string { return fmt.Sprintf("%c%d:%d", e.what, e.a, e.b) }

func (s *meetings) events() (all []event) {
	for from := range s.ranks {
		for to := range s.ranks {
			if len(s.links[from*s.ranks+to]) > 0 {
				all = append(all, event{'d', from, to})
			}
		}
	}
	for i, p := range s.parts {
		r, g := i/s.goroutines, i%s.goroutines
		switch {
		case p == nil && !s.made[i] && s.came[i] < s.comes:
			all = append(all, event{'c', r, g})
		case p == nil:
		case p.stage == refused, p.stage == calling && s.allCall(g):
			all = append(all, event{'e', r, g})
		case p.stage == invited && s.holder[r] < 0:
			all = append(all, event{'t', r, g})
		}
		if s.leaves > 0 && p != nil && p.stage < leaving {
			all = append(all, event{'l', r, g})
		}
	}
	return all
}

// allCall reports whether the library's call of a meeting returns: all members have made it.
func (s *meetings) allCall(g int) bool {
	for r := range s.ranks {
		if i := r*s.goroutines + g; !s.made[i] && (s.parts[i] == nil || s.parts[i].stage != calling) {
			return false
		}
	}
	return true
}

func (s *meetings) do(e event) {
	i := e.a*s.goroutines + e.b
	switch e.what {
	case 'd':
		link := &s.links[e.a*s.ranks+e.b]
		m := (*link)[0]
		*link = (*link)[1:]
		s.turns[e.b].hear(e.a, m)
	case 'c':
		order := make([]int, s.ranks)
		for r := range order {
			order[r] = r
		}
		s.came[i]++
		s.parts[i], _ = s.turns[e.a].come(uint64(e.b), order)
	case 't':
		s.holder[e.a] = e.b
		s.turns[e.a].promise(s.parts[i])
	case 'l':
		s.leaves--
		s.turns[e.a].leave(s.parts[i], nil)
	case 'e':
		s.made[i] = s.parts[i].stage == calling
		s.excluded = s.excluded || s.made[i] && s.turns[e.a].ordered && s.holder[e.a] != e.b
		s.parts[i] = nil
		if s.holder[e.a] == e.b {
			s.holder[e.a] = -1
		}
	}
}

// wrong returns what is wrong in a state in which nothing happens but that goroutines may leave. If one has left for
// good, the others of its meeting wait, and so may those that need their turns.
func (s *meetings) wrong() string {
	for i, p := range s.parts {
		if p != nil && (p.stage >= leaving || !s.absent()) {
			return fmt.Sprintf("rank %d waits in stage %d of meeting %d", i/s.goroutines, p.stage, i%s.goroutines)
		}
	}
	return ""
}

// absent reports whether a goroutine is not in its meeting any more, and has not made the call.
func (s *meetings) absent() bool {
	for i, p := range s.parts {
		if p == nil && !s.made[i] {
			return true
		}
	}
	return false
}

func (s *meetings) String() string {
	var b strings.Builder
	for _, t := range s.turns {
		for _, n := range slices.Sorted(maps.Keys(t.meetings)) {
			fmt.Fprint(&b, n, t.meetings[n].order, t.meetings[n].stages, ";")
		}
	}
	for _, p := range s.parts {
		if p == nil {
			b.WriteString("-")
		} else {
			fmt.Fprint(&b, p.stage)
		}
	}
	fmt.Fprint(&b, s.links, s.came, s.made, s.holder, s.leaves)
	return b.String()
}

// In every order of messages, turns and members that leave, the members of a meeting all make the call or none does, and
// each member's wait ends unless another one stays away.
func TestMembersMakeTheCallOrNoneDoes(t *testing.T) {
	for _, c := range []struct {
		name                             string
		ranks, goroutines, comes, leaves int
		ordered                          bool
	}{
		{"three ranks that leave and come again", 3, 1, 2, 6, false},
		{"three ranks that leave and come again, in turns", 3, 1, 2, 2, true},
		{"two meetings of three ranks, in turns", 3, 2, 1, 0, true},
		{"two meetings of two ranks that leave and come again, in turns", 2, 2, 2, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen, calls := map[string]bool{}, 0
			var path []event
			var explore func()
			explore = func() {
				s := newMeetings(c.ranks, c.goroutines, c.comes, c.leaves, c.ordered)
				for _, e := range path {
					s.do(e)
				}
				if key := s.String(); seen[key] {
					return
				} else {
					seen[key] = true
				}
				if s.excluded {
					t.Fatalf("a rank calls without its turn, after %v", path)
				}
				all := s.events()
				if !slices.ContainsFunc(all, func(e event) bool { return e.what != 'l' }) {
					if c.leaves == 0 && s.absent() {
						t.Fatalf("a rank was refused and nobody left, after %v", path)
					}
					if wrong := s.wrong(); wrong != "" {
						t.Fatalf("%s, after %v", wrong, path)
					}
				}
				if !slices.Contains(s.made, false) {
					calls++
				}
				for _, e := range all {
					path = append(path, e)
					explore()
					path = path[:len(path)-1]
				}
			}
			explore()
			if t.Logf("%d states", len(seen)); calls == 0 {
				t.Error("no order leads to the call")
			}
		})
	}
}
