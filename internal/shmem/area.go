package shmem

import "unsafe"

// Aligned returns b from its first byte on that begins a page; nil if there is none.
func Aligned(b []byte) []byte {
	// SAFETY: only a number is taken.
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(PageSize-1))
	if skip >= len(b) {
		return nil
	}
	return b[skip:]
}

// touch writes a zero to every page of b, which holds nothing else.
func touch(b []byte) {
	for i := 0; i < len(b); i += PageSize {
		b[i] = 0
	}
	if len(b) > 0 {
		b[len(b)-1] = 0
	}
}
