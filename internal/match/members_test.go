package match

import (
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func TestMembersConvertRanks(t *testing.T) {
	for _, world := range [][]int{{0}, {0, 1, 2}, {0, 2, 1}, {5, 3, 9}, {1}} {
		m := NewMembers(world)
		if m.Size() != len(world) {
			t.Errorf("%v: Size %d", world, m.Size())
		}
		for w := -1; w < 12; w++ {
			if got, want := m.RankOf(w), slices.Index(world, w); got != want {
				t.Errorf("%v: RankOf(%d) = %d, want %d", world, w, got, want)
			}
		}
		for r, w := range world {
			if m.WorldRank(r) != w {
				t.Errorf("%v: WorldRank(%d) = %d", world, r, m.WorldRank(r))
			}
			if got := m.Pattern(7, r, 3); got != (Env{Ctx: 7, Source: int32(w), Tag: 3}) {
				t.Errorf("%v: Pattern from %d: %+v", world, r, got)
			}
		}
		if got := m.Pattern(7, backend.AnySource, -1); got != (Env{Ctx: 7, Source: backend.AnySource, Tag: -1}) {
			t.Errorf("Pattern from any: %+v", got)
		}
	}
	m := NewMembers([]int{5, 3, 9})
	if got := m.Some([]int{2, 0}); !slices.Equal(got, []int{9, 5}) {
		t.Errorf("Some: %v", got)
	}
}
