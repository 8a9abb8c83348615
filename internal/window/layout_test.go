package window

import (
	"math"
	"testing"

	"github.com/cohort-hpc/cohort/internal/view"
)

// TestPartsBeginOnPages checks that parts begin on pages, in order, behind the heads, and that
// what is too much is said to be.
func TestPartsBeginOnPages(t *testing.T) {
	for _, sizes := range [][]int{{0}, {1}, {4096}, {4097, 0, 1}, make([]int, 64), make([]int, 65), {0, 0, math.MaxInt / 2}} {
		for _, page := range []int{4096, 16384, 65536} {
			l, ok := Apart(sizes, page)
			if !ok {
				t.Errorf("%v: false", sizes)
				continue
			}
			end := len(sizes) * headSize
			for r, at := range l.offsets {
				if at%page != 0 || at < end || at-end >= page {
					t.Errorf("%v, pages of %d: part %d begins at %d, the one before ends at %d", sizes, page, r, at, end)
				}
				end = at + sizes[r]
			}
			if l.Total%page != 0 || l.Total < end || l.Total-end >= page {
				t.Errorf("%v: %d bytes in all, the last part ends at %d", sizes, l.Total, end)
			}
		}
	}
	for _, sizes := range [][]int{
		{math.MaxInt}, {math.MaxInt - 4096}, {math.MaxInt / 2, math.MaxInt / 2}, {math.MaxInt/2 + 1, math.MaxInt/2 + 1, math.MaxInt/2 + 1, math.MaxInt/2 + 1, 1}, {-1}, {0, math.MinInt}, {math.MaxInt, math.MaxInt},
	} {
		if l, ok := Apart(sizes, 4096); ok {
			t.Errorf("%v fit into %d bytes", sizes, l.Total)
		}
	}
}

func TestHeadHasItsSize(t *testing.T) {
	if n := view.Size[head](); n != headSize || headSize%64 != 0 {
		t.Errorf("a head has %d bytes, want %d, whole cache lines", n, headSize)
	}
}

func TestLockKindNames(t *testing.T) {
	for k, want := range map[Kind]string{Shared: "shared", Exclusive: "exclusive", 0: "Kind(0)", 9: "Kind(9)"} {
		if k.String() != want {
			t.Errorf("kind %d is %q, want %q", k, k, want)
		}
	}
}
