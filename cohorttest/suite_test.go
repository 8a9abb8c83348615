package cohorttest

import (
	"slices"
	"testing"
)

// own is a launcher with its own numbers of ranks in the smaller matrix.
type own struct{ Goroutines }

func (own) Ranks(small bool) []int {
	if small {
		return []int{4}
	}
	return nil
}

func (own) Whole(ranks int) bool { return ranks == 3 }

func TestNumbersOfRanks(t *testing.T) {
	usual, short := []int{1, 2, 3, 4, 5, 7, 8}, []int{1, 2, 5}
	if racing {
		usual, short = []int{3}, []int{3}
		if testing.Short() {
			usual, short = []int{2, 3}, []int{2, 3}
		}
	}
	for _, c := range []struct {
		l     Launcher
		small bool
		want  []int
	}{
		{Goroutines{}, false, usual},
		{Goroutines{}, true, short},
		{own{}, false, usual},
		{own{}, true, []int{4}},
		{Mpiexec{Sizes: []int{4, 2}}, true, []int{4, 2}},
	} {
		if got := sizesOf(c.l, c.small); !slices.Equal(got, c.want) {
			t.Errorf("%T, smaller matrix %v: %v, want %v", c.l, c.small, got, c.want)
		}
	}
	for l, first := range map[Launcher]int{Goroutines{}: 7, own{}: 4} {
		if crowded(l, first-1) || !crowded(l, first) {
			t.Errorf("%T: the smaller matrix does not begin with %d ranks", l, first)
		}
	}
}
