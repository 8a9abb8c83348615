//go:build linux

package shm

import (
	"testing"
	"unsafe"
)

// The layout is computed from constants; the compiler's sizes must be the same.
func TestStructureSizes(t *testing.T) {
	if n := unsafe.Sizeof(rankArea{}); n != rankAreaSize {
		t.Errorf("rankArea has %d bytes, the layout has %d", n, rankAreaSize)
	}
	if unsafe.Sizeof(control{}) > 4096 {
		t.Errorf("control has %d bytes, more than its page", unsafe.Sizeof(control{}))
	}
	for _, n := range []int{1, 2, 3, 8, 9, 16, 17, 64, 65, maxRanks} {
		l := newLayout(n)
		if l.size > 600<<20 || l.size%4096 != 0 {
			t.Errorf("%v is too much", l)
		}
		t.Logf("%v", l)
	}
}
