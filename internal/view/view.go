package view

import "unsafe"

// Bytes returns the memory of s as bytes. It is nil if s has no bytes. T must
// not contain pointers: the result hides them from the garbage collector's
// write barriers.
func Bytes[T any](s []T) []byte {
	var zero T
	n := len(s) * int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	// SAFETY: the n bytes are those of s's elements; the result keeps the array
	// alive as any slice of it does.
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), n)
}

// Of returns the memory of b as elements of T, without the bytes after the last whole
// element. T must not contain pointers. Where processors fault on unaligned numbers, as 32-bit
// ARM does, the address of b must be aligned for T, as the address of a slice of T is.
func Of[T any](b []byte) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if size == 0 || len(b) < size {
		return nil
	}
	// SAFETY: the elements lie inside b; any bytes are a valid T since T holds
	// no pointers.
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size)
}

// Size returns the size of T in bytes.
func Size[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// One returns the element p points to as a slice of length 1.
func One[T any](p *T) []T { return unsafe.Slice(p, 1) }

// C returns the n elements at p, which a C library returned, or nil if p is nil. They are valid as
// long as the library keeps them.
func C[T any](p *T, n int) []T {
	if p == nil || n <= 0 {
		return nil
	}
	// SAFETY: the caller guarantees n and the lifetime of the array, which the garbage collector
	// does not manage.
	return unsafe.Slice(p, n)
}

// Address returns where b begins, for comparisons with other live slices.
func Address(b []byte) uintptr {
	// SAFETY: the address is only compared, as in Overlap.
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// Overlap reports whether a and b have a byte in common.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	// Both slices are live, so that neither can have moved between the two calls but for a stack that grew, which
	// moves both or neither of two buffers on it.
	x, y := Address(a), Address(b)
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// Same reports whether a and b are the same bytes: the same start and length,
// and at least one byte.
func Same(a, b []byte) bool {
	return len(a) > 0 && len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}
