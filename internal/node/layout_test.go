//go:build linux

package node

import (
	"testing"
	"unsafe"
)

// The layout is computed from constants; the compiler's sizes must be the same.
func TestLayoutHasCompilersSizes(t *testing.T) {
	if n := unsafe.Sizeof(rankArea{}); n != rankAreaSize {
		t.Errorf("rankArea has %d bytes, the layout has %d", n, rankAreaSize)
	}
	if unsafe.Sizeof(control{}) > 4096 {
		t.Errorf("control has %d bytes, more than its page", unsafe.Sizeof(control{}))
	}
	for _, n := range []int{1, 2, 3, 8, 9, 16, 17, 64, 65, 256, 1000} {
		for _, onDemand := range []bool{false, true} {
			l := newLayout(&Config{Ranks: upTo(n), OnDemand: onDemand})
			if n <= 256 && l.start > 600<<20 || onDemand && l.start > 64<<20 || l.start%page != 0 || l.size%page != 0 {
				t.Errorf("%+v is too much", l)
			}
			t.Logf("%+v", l)
		}
	}
}

// upTo returns the numbers below n.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// Every two ranks have rings of their own.
func TestPairsAreNumbered(t *testing.T) {
	const n = 9
	seen := make([]bool, n*(n-1)/2)
	for a := range n {
		for b := range a {
			if i := pairOf(a, b); i != pairOf(b, a) || seen[i] {
				t.Fatalf("ranks %d and %d have pair %d", a, b, i)
			} else {
				seen[i] = true
			}
		}
	}
}

func TestRingsHavePowersOfTwoWithinLimits(t *testing.T) {
	for n := 1; n < 1000; n++ {
		for onDemand, least := range map[bool]int{false: ringLeast, true: demandLeast} {
			size := dataSize(n, onDemand)
			if size < least || size > ringMost || size&(size-1) != 0 {
				t.Fatalf("%d ranks: %d", n, size)
			}
			if all := size * n * (n - 1); all > ringsMost && size > least {
				t.Errorf("%d ranks: rings of %d, %d bytes in all", n, size, all)
			}
		}
	}
	for n, want := range map[int]int{2: 1 << 20, 8: 1 << 20, 64: 16 << 10} {
		if got := dataSize(n, false); got != want {
			t.Errorf("%d ranks: %d, want %d", n, got, want)
		}
	}
}
