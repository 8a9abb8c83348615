package cohort

import (
	"errors"
	"slices"
	"testing"
)

func TestGroupSetOperations(t *testing.T) {
	ranks(t, 6, func(w *Comm) error {
		all := w.Group()
		must := func(g *Group, err error) *Group {
			if err != nil {
				t.Error(err)
			}
			return g
		}
		eq := func(what string, g *Group, want ...int) {
			if !slices.Equal(g.world, want) || g.Size() != len(want) {
				t.Errorf("%s: got %v, want %v", what, g.world, want)
			}
			at := slices.Index(want, w.Rank())
			if at < 0 {
				at = Undefined
			}
			if g.Rank() != at {
				t.Errorf("%s: rank %d has number %d, want %d", what, w.Rank(), g.Rank(), at)
			}
		}
		a, b := must(all.Incl(5, 1, 3)), must(all.Incl(3, 2, 5))
		eq("all", all, 0, 1, 2, 3, 4, 5)
		eq("incl", a, 5, 1, 3)
		eq("incl of incl", must(a.Incl(2, 0)), 3, 5)
		eq("incl of nothing", must(all.Incl()))
		eq("excl", must(all.Excl(0, 4)), 1, 2, 3, 5)
		eq("excl of incl", must(a.Excl(0)), 1, 3)
		eq("union", a.Union(b), 5, 1, 3, 2)
		eq("intersection", a.Intersection(b), 5, 3)
		eq("difference", a.Difference(b), 1)
		got, err := a.TranslateRanks([]int{0, 1, 2, ProcNull}, b)
		if err != nil || !slices.Equal(got, []int{2, Undefined, 0, ProcNull}) {
			t.Errorf("translated: %v, %v", got, err)
		}
		if a.Equal(b) || !a.Equal(must(all.Incl(5, 1, 3))) || !a.Similar(must(all.Incl(1, 3, 5))) || a.Similar(b) || a.Equal(must(all.Incl(1, 3, 5))) {
			t.Error("groups compare wrongly")
		}
		for what, f := range map[string]func() error{
			"out of range": func() error { _, err := all.Incl(6); return err },
			"negative":     func() error { _, err := all.Excl(-1); return err },
			"twice":        func() error { _, err := all.Incl(1, 2, 1); return err },
			"translate":    func() error { _, err := a.TranslateRanks([]int{3}, b); return err },
		} {
			if err := f(); !errors.Is(err, ErrRank) {
				t.Errorf("%s: %v", what, err)
			}
		}
		half, err := w.Split(w.Rank()%2, 0)
		if err != nil {
			return err
		}
		want := []int{w.Rank() % 2, w.Rank()%2 + 2, w.Rank()%2 + 4}
		eq("of a part", half.Group(), want...)
		return nil
	})
}
