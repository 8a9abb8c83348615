package kernel

import (
	"cmp"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// pair has the layout of cohort.Loc[T].
type pair[T real] struct {
	Val T
	Idx int64
}

// LocSize returns the size of a Loc whose value is of the given kind.
func LocSize(elem backend.Kind) int {
	switch elem {
	case backend.Complex64, backend.Complex128, backend.Bool:
		return 0 // there is no such Loc
	}
	if elem == backend.Int64 || elem == backend.Uint64 || elem == backend.Float64 {
		return view.Size[pair[int64]]()
	}
	return view.Size[pair[int32]]() // smaller values are padded alike, on 386 and arm to 4 bytes, elsewhere to 8
}

// before reports whether x comes before y in the order of minimum: NaN, then
// numbers from below, -0 before +0.
func before[T real](x, y T) bool {
	if x == y {
		return x == 0 && negative(x) && !negative(y)
	}
	return cmp.Less(x, y)
}

// after is before in the order of maximum: NaN, then numbers from above.
func after[T real](x, y T) bool {
	switch {
	case x != x:
		return y == y
	case y != y:
		return false
	case x == y:
		return x == 0 && negative(y) && !negative(x)
	}
	return x > y
}

// negative reports whether a zero is -0.
func negative[T real](zero T) bool { return 1/float64(zero) < 0 }

// loc returns the function that takes the pair whose value comes first, and the lower index of equal ones.
func loc[T real](first func(x, y T) bool) Apply {
	return func(dst, a, b []byte) {
		d, x, y := three[pair[T]](dst, a, b)
		for i := range d {
			p, q := x[i], y[i]
			if first(q.Val, p.Val) || q.Idx < p.Idx && !first(p.Val, q.Val) {
				p = q
			}
			d[i] = p
		}
	}
}

func forLoc[T real](op backend.OpCode) Apply {
	switch op {
	case backend.OpMinLoc:
		return loc(before[T])
	case backend.OpMaxLoc:
		return loc(after[T])
	}
	return nil
}
