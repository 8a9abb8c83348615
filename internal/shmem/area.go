package shmem

import (
	"os"
	"unsafe"
)

// PageSize is the unit in which memory is mapped.
var PageSize = os.Getpagesize()

// Aligned returns b from its first byte on that begins a page; nil if there is none.
func Aligned(b []byte) []byte {
	// SAFETY: only a number is taken.
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(PageSize-1))
	if skip >= len(b) {
		return nil
	}
	return b[skip:]
}

// populateStep is how many bytes are populated at a time.
const populateStep = 64 << 20

// touch writes a zero to every page of b, which holds nothing else. An error of stop, which is asked
// between the steps, ends it.
func touch(b []byte, stop func() error) error {
	for len(b) > 0 {
		if err := stop(); err != nil {
			return err
		}
		n := min(len(b), populateStep)
		for i := 0; i < n; i += PageSize {
			b[i] = 0
		}
		b[n-1] = 0
		b = b[n:]
	}
	return nil
}
