package span

import (
	"math/rand/v2"
	"testing"
)

// TestSetMatchesTable compares a set with a table of the range of each address.
func TestSetMatchesTable(t *testing.T) {
	const end, steps = 300, 3000
	random := rand.New(rand.NewPCG(1, 2))
	var s Set[int]
	var owner [end]int // 0: none
	start := make(map[int]uintptr)
	for id := 1; id <= steps; id++ {
		if random.IntN(3) > 0 {
			from, n := uintptr(random.IntN(end)), uintptr(1+random.IntN(20))
			at, ok := s.Gap(from, end, n)
			expect, found := uintptr(0), false
			for a := from; a+n <= end && !found; a++ {
				found = true
				for _, o := range owner[a : a+n] {
					found = found && o == 0
				}
				expect = a
			}
			if ok != found || ok && at != expect {
				t.Fatalf("step %d: gap of %d from %d: %d, %t, want %d, %t", id, n, from, at, ok, expect, found)
			}
			if ok {
				s.Add(Span[int]{At: at, N: n, Value: id})
				start[id] = at
				for i := range n {
					owner[at+i] = id
				}
			}
		} else {
			at := uintptr(random.IntN(end))
			id := owner[at]
			is := id != 0 && start[id] == at
			if s.Remove(at) != is {
				t.Fatalf("removing what starts at %d: want %t", at, is)
			}
			if is {
				delete(start, id)
				for i, o := range owner {
					if o == id {
						owner[i] = 0
					}
				}
			}
		}
		for range 10 {
			a, n := uintptr(random.IntN(end)), uintptr(random.IntN(20))
			p, ok := s.Find(a)
			if ok != (owner[a] != 0) || ok && p.Value != owner[a] {
				t.Fatalf("step %d: address %d is in %d, %t, want %d", id, a, p.Value, ok, owner[a])
			}
			holds := owner[a] != 0
			for i := range n {
				holds = holds && a+i < end && owner[a+i] == owner[a]
			}
			if s.Holds(a, n) != holds {
				t.Fatalf("step %d: %d addresses from %d in one range: want %t", id, n, a, holds)
			}
		}
	}
	if len(s.all) != len(start) {
		t.Errorf("%d ranges, want %d", len(s.all), len(start))
	}
}

func TestAddressOfSlice(t *testing.T) {
	b := make([]byte, 10)
	if Address(b[3:]) != Address(b)+3 || Address(nil) != 0 {
		t.Error("the address of a slice is not that of its first byte")
	}
}
