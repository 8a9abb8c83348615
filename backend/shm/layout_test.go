//go:build linux

package shm

import (
	"testing"
	"unsafe"
)

// The layout is computed from constants because unsafe has no place here; the
// compiler's sizes must be the same.
func TestStructureSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"rankArea", unsafe.Sizeof(rankArea{}), rankAreaSize},
		{"desc", unsafe.Sizeof(desc{}), descSize},
		{"cell", unsafe.Sizeof(cell{}), line},
		{"ring", unsafe.Sizeof(ring{}), ringSize},
		{"callSlot", unsafe.Sizeof(callSlot{}), callSlotSize},
		{"syncSlot", unsafe.Sizeof(syncSlot{}), syncSlotSize},
		{"slots", unsafe.Sizeof(slots{}), slotsSize},
	} {
		if c.got != c.want {
			t.Errorf("%s has %d bytes, the layout says %d", c.name, c.got, c.want)
		}
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
