package cohorttest

import (
	"slices"
	"testing"
)

// wider is a launcher that adds numbers of ranks, one of which Test has anyway.
type wider struct{ Goroutines }

func (wider) More() []int { return []int{6, 5} }

// narrow is a launcher with its own numbers of ranks in the smaller matrix.
type narrow struct{ Goroutines }

func (narrow) Fewer() []int { return []int{4} }

// The numbers of ranks that a launcher adds occur once. The smaller matrix and the race
// detector have fixed ones, except that a launcher may choose those of the smaller matrix. Those of a Mpiexec replace all others.
func TestNumbersOfRanks(t *testing.T) {
	for _, c := range []struct {
		l     Launcher
		small bool
		want  []int
	}{
		{Goroutines{}, false, []int{1, 2, 3, 4, 5, 7, 8}},
		{wider{}, false, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{wider{}, true, []int{1, 2, 3, 5}},
		{narrow{}, false, []int{1, 2, 3, 4, 5, 7, 8}},
		{narrow{}, true, []int{4}},
		{Mpiexec{Sizes: []int{4, 2}}, true, []int{4, 2}},
	} {
		if _, fixed := c.l.(Mpiexec); racing && !fixed {
			c.want = []int{2, 3}
		}
		if got := sizesOf(c.l, c.small); !slices.Equal(got, c.want) {
			t.Errorf("%T, smaller matrix %v: %v, want %v", c.l, c.small, got, c.want)
		}
	}
}
