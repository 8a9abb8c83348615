package cohorttest

import (
	"slices"
	"testing"
)

// wider is a launcher with numbers of ranks of its own, one of which all have.
type wider struct{ Goroutines }

func (wider) More() []int { return []int{6, 5} }

// The numbers of ranks that a launcher asks for are there, each once; the smaller matrix has its own, and so has the
// race detector. Those that a Mpiexec has are the only ones.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		l     Launcher
		small bool
		want  []int
	}{
		{Goroutines{}, false, []int{1, 2, 3, 4, 5, 7, 8}},
		{wider{}, false, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{wider{}, true, []int{1, 2, 3, 5}},
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
