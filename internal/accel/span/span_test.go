package span

import (
	"math/rand/v2"
	"slices"
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
			part := owner[from:min(from+n, end)]
			if slices.Max(part) == 0 {
				s.Add(Span[int]{At: from, N: uintptr(len(part)), Value: id})
				start[id] = from
				for i := range part {
					part[i] = id
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
