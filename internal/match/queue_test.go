package match

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// model is the rule itself: a slice in the order pushed, searched from the front.
type model []*Node

func (m *model) find(takes func(Env) bool) *Node {
	for _, n := range *m {
		if takes(n.Env) {
			return n
		}
	}
	return nil
}

func (m *model) remove(n *Node) bool {
	i := slices.Index(*m, n)
	if i >= 0 {
		*m = slices.Delete(*m, i, i+1)
	}
	return i >= 0
}

func TestPatternsTakeMatchingMessages(t *testing.T) {
	msg := Env{Ctx: 7, Source: 3, Tag: 5}
	internal := Env{Ctx: 7, Source: 3, Tag: -5}
	for _, c := range []struct {
		want, have Env
		takes      bool
	}{
		{Env{7, 3, 5, 9}, msg, true},
		{Env{8, 3, 5, 9}, msg, false},
		{Env{7, 2, 5, 9}, msg, false},
		{Env{7, 3, 6, 9}, msg, false},
		{Env{7, backend.AnySource, 5, 9}, msg, true},
		{Env{7, backend.AnySource, 6, 9}, msg, false},
		{Env{7, 3, backend.AnyTag, 9}, msg, true},
		{Env{7, backend.AnySource, backend.AnyTag, 9}, msg, true},
		{Env{8, backend.AnySource, backend.AnyTag, 9}, msg, false},
		{Env{7, 3, backend.AnyTag, 9}, internal, false},
		{Env{7, 3, -5, 9}, internal, true},
		{Env{7, backend.AnySource, -5, 9}, internal, true},
		{Env{7, 3, backend.AnyTag, 9}, Env{7, 3, 0, 0}, true},
		{Env{7, 3, backend.AnyTag, 9}, Env{7, 3, backend.MaxTag, 0}, true},
	} {
		if got := c.want.Takes(c.have); got != c.takes {
			t.Errorf("%+v takes %+v: %v, want %v", c.want, c.have, got, c.takes)
		}
	}
}

// play drives a queue of patterns and a queue of messages with the bytes of
// prog and holds every answer against the model.
func play(t *testing.T, prog []byte, sources int) {
	t.Helper()
	var posted, arrived Queue
	var mp, ma model
	next := func() int {
		if len(prog) == 0 {
			return 0
		}
		b := prog[0]
		prog = prog[1:]
		return int(b)
	}
	envelope := func(pattern bool) Env {
		e := Env{Ctx: uint32(next() % 2), Source: int32(next() % sources), Tag: int32(next()%4) - 1}
		if pattern {
			if next()%3 == 0 {
				e.Source = backend.AnySource
			}
			if next()%3 == 0 {
				e.Tag = backend.AnyTag
			}
		}
		return e
	}
	check := func(what string, got, want *Node) {
		t.Helper()
		if got != want {
			t.Fatalf("%s gave %+v, want %+v", what, got, want)
		}
	}
	for step := 0; len(prog) > 0; step++ {
		switch next() % 10 {
		case 0, 1, 2:
			n := &Node{Env: envelope(true), Owner: step}
			posted.Push(n)
			mp = append(mp, n)
		case 3, 4, 5:
			n := &Node{Env: envelope(false), Owner: step}
			arrived.Push(n)
			ma = append(ma, n)
		case 6:
			have := envelope(false)
			want := mp.find(func(e Env) bool { return e.Takes(have) })
			check("FindPosted", posted.FindPosted(have), want)
			check("TakePosted", posted.TakePosted(have), want)
			mp.remove(want)
		case 7:
			pattern := envelope(true)
			want := ma.find(pattern.Takes)
			check("FindArrived", arrived.FindArrived(pattern), want)
			check("TakeArrived", arrived.TakeArrived(pattern), want)
			ma.remove(want)
		case 8:
			if len(mp) > 0 {
				n := mp[next()%len(mp)]
				if arrived.Remove(n) {
					t.Fatal("a node was removed from a queue it is not in")
				}
				if !posted.Remove(n) || posted.Remove(n) {
					t.Fatal("Remove must be true once")
				}
				mp.remove(n)
			}
		case 9:
			mod := 2 + next()%3
			var seen, left model
			arrived.Each(func(n *Node) bool {
				seen = append(seen, n)
				if n.Owner.(int)%mod == 0 {
					return arrived.Remove(n)
				}
				left = append(left, n)
				return true
			})
			if !slices.Equal(seen, ma) {
				t.Fatal("Each is not in the order pushed")
			}
			ma = left
		}
		if posted.Len() != len(mp) || arrived.Len() != len(ma) {
			t.Fatalf("lengths %d and %d, want %d and %d", posted.Len(), arrived.Len(), len(mp), len(ma))
		}
	}
}

func TestQueueAgainstModel(t *testing.T) {
	for _, sources := range []int{1, 3, 200} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprintf("sources=%d/seed=%d", sources, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				prog := make([]byte, 6000)
				for i := range prog {
					prog[i] = byte(r.Uint32())
				}
				play(t, prog, sources)
			})
		}
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{3, 0, 1, 2, 7, 0, 1, 2, 1, 1})
	f.Add(slices.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 40))
	f.Fuzz(func(t *testing.T, prog []byte) { play(t, prog, 5) })
}

// Long queues grow the index several times; every message must still be found,
// each source's in the order sent.
func TestLongQueueFindsEveryMessage(t *testing.T) {
	const sources, each = 1000, 20
	var q Queue
	for i := range each {
		for s := range sources {
			q.Push(&Node{Env: Env{1, int32(s), 9, 0}, Owner: i})
		}
	}
	for s := sources - 1; s >= 0; s-- {
		for i := range each {
			n := q.TakeArrived(Env{1, int32(s), 9, 0})
			if n == nil || n.Env.Source != int32(s) || n.Owner != i {
				t.Fatalf("message %d of source %d: got %+v", i, s, n)
			}
		}
	}
	if q.Len() != 0 {
		t.Errorf("%d messages left", q.Len())
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	var q Queue
	nodes := make([]Node, 5000)
	fill := func() {
		for i := range nodes {
			nodes[i].Env = Env{1, int32(i % 1000), 0, 0}
			q.Push(&nodes[i])
		}
		for i := range nodes {
			if q.TakePosted(Env{1, int32(i % 1000), 0, 0}) == nil {
				t.Fatal("a pattern was not found")
			}
		}
	}
	fill() // as long as it will ever be
	if n := testing.AllocsPerRun(10, fill); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkQueue(b *testing.B) {
	for _, depth := range []int{1, 16, 1000, 10000} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			var q Queue
			nodes := make([]Node, depth)
			for i := range nodes {
				nodes[i].Env = Env{1, int32(i % 1000), int32(i / 1000), 0}
				q.Push(&nodes[i])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n := q.TakePosted(nodes[i%depth].Env)
				q.Push(n)
			}
		})
	}
}
