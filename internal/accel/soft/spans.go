package soft

import (
	"reflect"
	"slices"
)

// spans are ranges of addresses that do not overlap, in their order.
type spans[T any] struct{ all []span[T] }

type span[T any] struct {
	at, n uintptr
	value T
}

// after returns the index of the first that starts after a.
func (s *spans[T]) after(a uintptr) int {
	i, _ := slices.BinarySearchFunc(s.all, a, func(p span[T], a uintptr) int {
		if p.at <= a {
			return -1
		}
		return 1
	})
	return i
}

// find returns the one that holds a.
func (s *spans[T]) find(a uintptr) (span[T], bool) {
	if i := s.after(a) - 1; i >= 0 && a-s.all[i].at < s.all[i].n {
		return s.all[i], true
	}
	return span[T]{}, false
}

func (s *spans[T]) add(p span[T]) { s.all = slices.Insert(s.all, s.after(p.at), p) }

// remove takes away the one that starts at a, which is there.
func (s *spans[T]) remove(a uintptr) { i := s.after(a); s.all = slices.Delete(s.all, i-1, i) }

// place returns the first gap of n bytes at or after from, within [lo, hi).
func (s *spans[T]) place(lo, hi, from, n uintptr) (uintptr, bool) {
	at := from
	for _, p := range s.all {
		if p.at+p.n <= at {
			continue
		}
		if p.at >= at && p.at-at >= n {
			break
		}
		at = p.at + p.n
	}
	if at >= lo && at <= hi && hi-at >= n {
		return at, true
	}
	return 0, false
}

// address is where a slice's memory is.
func address(b []byte) uintptr { return reflect.ValueOf(b).Pointer() }
