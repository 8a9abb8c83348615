package spawn

import (
	"slices"
	"testing"
)

// TestPartHasProgramsOfItsRanks compares every part of some lists with the program of each rank, written out.
func TestPartHasProgramsOfItsRanks(t *testing.T) {
	each := func(p Programs) (paths []string) {
		for _, x := range p {
			if x.Ranks < 1 {
				t.Errorf("%v has a program without ranks", p)
			}
			paths = append(paths, slices.Repeat([]string{x.Path}, x.Ranks)...)
		}
		return paths
	}
	for _, p := range []Programs{{{"a", nil, 3}}, {{"a", nil, 1}, {"b", nil, 4}}, {{"a", nil, 2}, {"b", nil, 1}, {"a", nil, 3}}} {
		all := each(p)
		for first := range all {
			if got := p.Of(first).Path; got != all[first] {
				t.Errorf("%v: rank %d is %s, want %s", p, first, got, all[first])
			}
			for n := range len(all) - first + 1 {
				if got := each(p.Part(first, n)); !slices.Equal(got, all[first:first+n]) {
					t.Errorf("%v: %d ranks from %d on are %v, want %v", p, n, first, got, all[first:first+n])
				}
			}
		}
	}
}
