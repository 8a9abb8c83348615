//go:build cgo && linux

package mpi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// meetings is a job whose ranks meet: some goroutines of each rank, each of them in one meeting after the other, and the
// messages under way.
type meetings struct {
	ranks, goroutines int
	comes             int // meetings of each goroutine
	leaves            int // how often goroutines leave
	turns             []*turns
	links             [][][]byte // of from*ranks+to
	parts             []*part    // of rank*goroutines+goroutine; nil: not in a meeting
	came              []int      // the same
	called, refused   []int      // of a meeting: members that have been in it
	left              []bool     // of a meeting: a member has
	holder            []int      // the goroutine that has a rank's turn, -1: none
	excluded          bool       // one has called without
}

func newMeetings(ranks, goroutines, comes, leaves int, ordered bool) *meetings {
	all, each := ranks*goroutines, goroutines*comes
	s := &meetings{ranks: ranks, goroutines: goroutines, comes: comes, leaves: leaves, links: make([][][]byte, ranks*ranks),
		parts: make([]*part, all), came: make([]int, all), called: make([]int, each), refused: make([]int, each), left: make([]bool, each)}
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
		case p == nil && s.came[i] < s.comes:
			all = append(all, event{'c', r, g})
		case p == nil:
		case p.stage == refused, p.stage == calling && s.calls(int(p.meeting)) == s.ranks:
			all = append(all, event{'e', r, g})
		case p.stage == invited && (s.holder[r] < 0 || !s.turns[r].ordered):
			all = append(all, event{'t', r, g})
		}
		if s.leaves > 0 && p != nil {
			all = append(all, event{'l', r, g})
		}
	}
	return all
}

// in returns how many members have come to a meeting.
func (s *meetings) in(meeting int) (n int) {
	for i, came := range s.came {
		if i%s.goroutines == meeting/s.comes && came > meeting%s.comes {
			n++
		}
	}
	return n
}

// calls returns how many members have made the call of a meeting. It returns once all have.
func (s *meetings) calls(meeting int) int {
	n := s.called[meeting]
	for _, p := range s.parts {
		if p != nil && int(p.meeting) == meeting && p.stage == calling {
			n++
		}
	}
	return n
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
		s.parts[i], _ = s.turns[e.a].come(uint64(e.b*s.comes+s.came[i]), order)
		s.came[i]++
	case 't':
		s.holder[e.a] = e.b
		s.turns[e.a].promise(s.parts[i])
	case 'l':
		s.leaves--
		s.left[s.parts[i].meeting] = s.left[s.parts[i].meeting] || s.parts[i].stage <= promised
		s.turns[e.a].leave(s.parts[i], nil)
	case 'e':
		if p := s.parts[i]; p.stage == calling {
			s.called[p.meeting]++
			s.excluded = s.excluded || s.turns[e.a].ordered && s.holder[e.a] != e.b
		} else {
			s.refused[p.meeting]++
		}
		s.parts[i] = nil
		if s.holder[e.a] == e.b {
			s.holder[e.a] = -1
		}
	}
}

// wrong returns what is wrong in a state. It is quiet if nothing can happen but that members come or leave.
func (s *meetings) wrong(quiet bool) string {
	for n, refused := range s.refused {
		if refused > 0 && (s.calls(n) > 0 || !s.left[n]) {
			return fmt.Sprintf("meeting %d: %d members call, and %d were refused", n, s.calls(n), refused)
		}
	}
	if s.excluded {
		return "a rank calls without its turn"
	}
	for i, p := range s.parts {
		if !quiet || p == nil {
			continue
		}
		n, g := int(p.meeting), i%s.goroutines
		if decided := s.left[n] && s.came[g] > n%s.comes; p.stage >= promised || decided || s.in(n) == s.ranks {
			return fmt.Sprintf("rank %d waits in stage %d of meeting %d", i/s.goroutines, p.stage, n)
		}
	}
	return ""
}

func (s *meetings) String() string {
	var b strings.Builder
	for _, t := range s.turns {
		for _, n := range slices.Sorted(maps.Keys(t.meetings)) {
			fmt.Fprint(&b, n, t.meetings[n].order, t.meetings[n].stages, t.meetings[n].left, ";")
		}
		for _, n := range slices.Sorted(maps.Keys(t.parts)) {
			fmt.Fprint(&b, n, t.parts[n].stage, ";")
		}
	}
	for _, p := range s.parts {
		if p == nil {
			b.WriteString("-")
		} else {
			fmt.Fprint(&b, p.stage)
		}
	}
	fmt.Fprint(&b, s.links, s.came, s.called, s.refused, s.left, s.holder, s.leaves)
	return b.String()
}

// In every order of messages, turns and members that leave, the members of a meeting all make the call or none does. A
// member that has promised gets an answer before another one comes or leaves. The others wait only for one that has yet to
// come, and not if one has left and the decider has come.
func TestMembersMakeTheCallOrNoneDoes(t *testing.T) {
	for _, c := range []struct {
		name                             string
		ranks, goroutines, comes, leaves int
		ordered                          bool
	}{
		{"two meetings of three ranks, one after the other", 3, 1, 2, 1, false},
		{"a meeting of three ranks that leave", 3, 1, 1, 2, false},
		{"two meetings of three ranks, one after the other, in turns", 3, 1, 2, 1, true},
		{"two meetings of three ranks at once, in turns", 3, 2, 1, 0, true},
		{"two meetings of two ranks at once, then two more, in turns", 2, 2, 2, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !testing.Short() {
				c.leaves++
			}
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
				all := s.events()
				quiet := !slices.ContainsFunc(all, func(e event) bool { return e.what != 'c' && e.what != 'l' })
				if wrong := s.wrong(quiet); wrong != "" {
					t.Fatalf("%s, after %v", wrong, path)
				}
				if len(all) == 0 && !slices.Contains(s.called, 0) {
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
				t.Error("no order leads to the calls")
			}
		})
	}
}
