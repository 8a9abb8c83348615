package span

import (
	"reflect"
	"slices"
)

// Span is a range of N addresses from At, and its value.
type Span[T any] struct {
	At, N uintptr
	Value T
}

// Set is a set of ranges that do not overlap. The zero value is empty. It is not safe for
// concurrent use.
type Set[T any] struct{ all []Span[T] } // in ascending order

// after returns the index of the first range that starts after a.
func (s *Set[T]) after(a uintptr) int {
	i, _ := slices.BinarySearchFunc(s.all, a, func(p Span[T], a uintptr) int {
		if p.At <= a {
			return -1
		}
		return 1
	})
	return i
}

// Find returns the range that contains an address.
func (s *Set[T]) Find(a uintptr) (Span[T], bool) {
	if i := s.after(a) - 1; i >= 0 && a-s.all[i].At < s.all[i].N {
		return s.all[i], true
	}
	return Span[T]{}, false
}

// Holds reports whether one range contains all n addresses from a.
func (s *Set[T]) Holds(a, n uintptr) bool {
	p, ok := s.Find(a)
	return ok && n <= p.N-(a-p.At)
}

// Add adds a range that overlaps no other.
func (s *Set[T]) Add(p Span[T]) { s.all = slices.Insert(s.all, s.after(p.At), p) }

// Remove removes the range that starts at an address, and reports whether it existed.
func (s *Set[T]) Remove(at uintptr) bool {
	i := s.after(at) - 1
	if i < 0 || s.all[i].At != at {
		return false
	}
	s.all = slices.Delete(s.all, i, i+1)
	return true
}

// Address is the address of a slice's memory.
func Address(b []byte) uintptr { return reflect.ValueOf(b).Pointer() }
