package backend

import "testing"

func TestRankList(t *testing.T) {
	many := make([]int, 100)
	for i := range many {
		many[i] = 3 * i
	}
	for _, c := range []struct {
		list []int
		want string
	}{
		{[]int{4}, "rank 4"}, {[]int{1, 2}, "ranks 1, 2"}, {[]int{1, 2, 3}, "ranks 1-3"}, {[]int{0, 2, 3, 4, 9}, "ranks 0, 2-4, 9"},
		{many, "ranks 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45 and 84 more"},
	} {
		if got := RankList(c.list); got != c.want {
			t.Errorf("%v: %q, want %q", c.list, got, c.want)
		}
	}
}
