//go:build cgo && linux

package mpi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// committing is a job whose ranks commit: some goroutines of each rank, each of them in one transaction after the other, and
// the messages under way.
type committing struct {
	ranks, goroutines int
	each              int // transactions of each goroutine
	withdrawals       int // how often goroutines withdraw
	transactions      []*transactions
	links             [][][]byte     // of from*ranks+to
	members           []*participant // of rank*goroutines+goroutine; nil: not in a transaction
	joins             []int          // the same
	called, refused   []int          // of a transaction: members that have been in it
	withdrawn         []bool         // of a transaction: a member has, or could not be told to prepare
	holder            []int          // the goroutine that has a rank's lock, -1: none
	excluded          bool           // one has called without
}

func newCommitting(ranks, goroutines, each, withdrawals int, ordered, fails bool) *committing {
	all, numbers := ranks*goroutines, goroutines*each
	s := &committing{ranks: ranks, goroutines: goroutines, each: each, withdrawals: withdrawals, links: make([][][]byte, ranks*ranks),
		members: make([]*participant, all), joins: make([]int, all), called: make([]int, numbers), refused: make([]int, numbers), withdrawn: make([]bool, numbers)}
	for r := range ranks {
		t := newTransactions(r, ordered, func(to int, m []byte) bool {
			if fails && m[0] == prepare && to == ranks-1 {
				s.withdrawn[m[1]] = true
				return false
			}
			s.links[r*ranks+to] = append(s.links[r*ranks+to], m)
			return true
		})
		s.transactions, s.holder = append(s.transactions, &t), append(s.holder, -1)
	}
	return s
}

// event is something that can happen.
type event struct {
	what byte // d: to receives a message of from; of a goroutine: j: joins, l: takes its lock, w: withdraws, e: notes its end
	a, b int  // from and to, or rank and goroutine
}

func (e event) String() string { return fmt.Sprintf("%c%d:%d", e.what, e.a, e.b) }

func (s *committing) events() (all []event) {
	for from := range s.ranks {
		for to := range s.ranks {
			if len(s.links[from*s.ranks+to]) > 0 {
				all = append(all, event{'d', from, to})
			}
		}
	}
	for i, p := range s.members {
		r, g := i/s.goroutines, i%s.goroutines
		switch {
		case p == nil && s.joins[i] < s.each:
			all = append(all, event{'j', r, g})
		case p == nil:
		case p.state == aborted, p.state == committed && s.calls(int(p.number)) == s.ranks:
			all = append(all, event{'e', r, g})
		case p.state == preparing && (s.holder[r] < 0 || !s.transactions[r].ordered):
			all = append(all, event{'l', r, g})
		}
		if s.withdrawals > 0 && p != nil {
			all = append(all, event{'w', r, g})
		}
	}
	return all
}

// in returns how many members have joined a transaction.
func (s *committing) in(number int) (n int) {
	for i, joins := range s.joins {
		if i%s.goroutines == number/s.each && joins > number%s.each {
			n++
		}
	}
	return n
}

// calls returns how many members have begun the call of a transaction. The call returns once all have.
func (s *committing) calls(number int) int {
	n := s.called[number]
	for _, p := range s.members {
		if p != nil && int(p.number) == number && p.state == committed {
			n++
		}
	}
	return n
}

func (s *committing) do(e event) {
	i := e.a*s.goroutines + e.b
	switch e.what {
	case 'd':
		link := &s.links[e.a*s.ranks+e.b]
		m := (*link)[0]
		*link = (*link)[1:]
		s.transactions[e.b].receive(e.a, m)
	case 'j':
		order := make([]int, s.ranks)
		for r := range order {
			order[r] = r
		}
		s.members[i], _ = s.transactions[e.a].join(uint64(e.b*s.each+s.joins[i]), order)
		s.joins[i]++
	case 'l':
		s.holder[e.a] = e.b
		s.transactions[e.a].ready(s.members[i])
	case 'w':
		s.withdrawals--
		s.withdrawn[s.members[i].number] = s.withdrawn[s.members[i].number] || s.members[i].state <= prepared
		s.transactions[e.a].withdraw(s.members[i], nil)
	case 'e':
		if p := s.members[i]; p.state == committed {
			s.called[p.number]++
			s.excluded = s.excluded || s.transactions[e.a].ordered && s.holder[e.a] != e.b
		} else {
			s.refused[p.number]++
		}
		s.members[i] = nil
		if s.holder[e.a] == e.b {
			s.holder[e.a] = -1
		}
	}
}

// wrong returns what is wrong in a state. It is quiet if nothing can happen but that members join or withdraw.
func (s *committing) wrong(quiet bool) string {
	for n, refused := range s.refused {
		if refused > 0 && (s.calls(n) > 0 || !s.withdrawn[n]) {
			return fmt.Sprintf("transaction %d: %d members call, and %d were refused", n, s.calls(n), refused)
		}
	}
	if s.excluded {
		return "a rank calls without its lock"
	}
	for i, p := range s.members {
		if !quiet || p == nil {
			continue
		}
		n, g := int(p.number), i%s.goroutines
		if decided := s.withdrawn[n] && s.joins[g] > n%s.each; p.state >= prepared || decided || s.in(n) == s.ranks {
			return fmt.Sprintf("rank %d waits in state %d of transaction %d", i/s.goroutines, p.state, n)
		}
	}
	return ""
}

func (s *committing) String() string {
	var b strings.Builder
	for _, t := range s.transactions {
		for _, n := range slices.Sorted(maps.Keys(t.coordinates)) {
			fmt.Fprint(&b, n, t.coordinates[n].order, t.coordinates[n].states, t.coordinates[n].withdrawn, ";")
		}
		for _, n := range slices.Sorted(maps.Keys(t.joins)) {
			fmt.Fprint(&b, n, t.joins[n].state, ";")
		}
	}
	for _, p := range s.members {
		if p == nil {
			b.WriteString("-")
		} else {
			fmt.Fprint(&b, p.state)
		}
	}
	fmt.Fprint(&b, s.links, s.joins, s.called, s.refused, s.withdrawn, s.holder, s.withdrawals)
	return b.String()
}

// The ids of communicators that are made at once may be far apart, because each rank has made others before. Those of all
// communicators that MPICH (2^28-1) or Open MPI (2^31-1) can tell apart by tags have tags of their own.
func TestCommunicatorsHaveTheirOwnTags(t *testing.T) {
	for _, maxTag := range []int{1<<28 - 1, 1<<31 - 1} {
		for apart := uint32(1); apart < 1<<27; apart *= 2 {
			a, b := makingTag(7, maxTag), makingTag(7+apart, maxTag)
			if a == b || a%2 != 0 || b%2 != 0 || max(a, b)+1 > maxTag {
				t.Errorf("up to %d, ids 7 and %d have the tags %d and %d", maxTag, 7+apart, a, b)
			}
		}
	}
	if tag := makingTag(1<<30, 1<<15-1) + 1; tag > 1<<15-1 {
		t.Errorf("tag %d is above the smallest limit of MPI", tag)
	}
}

// In every order of messages, locks and members that withdraw, the members of a transaction all make the call or none does. A
// prepared member gets the decision before another one joins or withdraws. The others wait only for one that has yet to join,
// and not if one has withdrawn and the coordinator has joined.
func TestMembersMakeTheCallOrNoneDoes(t *testing.T) {
	for _, c := range []struct {
		name                                 string
		ranks, goroutines, each, withdrawals int
		ordered, fails                       bool // fails: the last rank cannot be told to prepare
	}{
		{"two transactions of three ranks, one after the other", 3, 1, 2, 1, false, false},
		{"a transaction of three ranks that withdraw", 3, 1, 1, 2, false, false},
		{"two transactions of three ranks, one after the other, in order", 3, 1, 2, 1, true, false},
		{"two transactions of three ranks at once, in order", 3, 2, 1, 0, true, false},
		{"two transactions of two ranks at once, then two more, in order", 2, 2, 2, 1, true, false},
		{"a rank cannot be told to prepare", 3, 1, 2, 0, false, true},
		{"a rank cannot be told to prepare, in order", 3, 1, 2, 0, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !testing.Short() {
				c.withdrawals++
			}
			seen, calls := map[string]bool{}, 0
			var path []event
			var explore func()
			explore = func() {
				s := newCommitting(c.ranks, c.goroutines, c.each, c.withdrawals, c.ordered, c.fails)
				for _, e := range path {
					s.do(e)
				}
				if key := s.String(); seen[key] {
					return
				} else {
					seen[key] = true
				}
				all := s.events()
				quiet := !slices.ContainsFunc(all, func(e event) bool { return e.what != 'j' && e.what != 'w' })
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
			if t.Logf("%d states", len(seen)); (calls == 0) != c.fails {
				t.Errorf("%d orders lead to the calls", calls)
			}
		})
	}
}
