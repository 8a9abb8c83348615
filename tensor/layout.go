package tensor

import (
	"math"
	"math/bits"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/view"
)

// What is here is arithmetic of shapes and strides, the same for all types.

// elements returns how many elements a shape has. The lengths beside one of 0 count as well, so that
// strides never overflow.
func elements[T cohort.Number](shape []int) (int, error) { return count(shape, view.Size[T]()) }

// count returns how many elements of a size a shape has.
func count(shape []int, size int) (int, error) {
	n, empty := uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, fault(cohort.ErrCount, "the shape %v has a negative length", slices.Clone(shape))
		}
		if d == 0 {
			empty = true
			continue
		}
		over, m := bits.Mul64(n, uint64(d))
		if over != 0 || m > uint64(math.MaxInt/size) {
			return 0, fault(cohort.ErrCount, "the shape %v has too many elements", slices.Clone(shape))
		}
		n = m
	}
	if empty {
		return 0, nil
	}
	return int(n), nil
}

// rowMajor returns the strides of a contiguous tensor.
func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	next := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = next
		next *= max(shape[i], 1)
	}
	return strides
}

// extent returns how many elements there are from the first of a tensor to its last, math.MaxInt for
// more than can be counted. Strides are not negative.
func extent(shape, strides []int) int {
	if slices.Contains(shape, 0) {
		return 0
	}
	end := uint64(1)
	for i, d := range shape {
		over, far := bits.Mul64(uint64(d-1), uint64(strides[i]))
		if over != 0 || far > math.MaxInt-end {
			return math.MaxInt
		}
		end += far
	}
	return int(end)
}

// contiguous reports whether strides are those of a tensor without gaps. Those of dimensions of length
// 1 do not matter.
func contiguous(shape, strides []int) bool {
	next := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > 1 && strides[i] != next {
			return false
		}
		next *= shape[i]
	}
	return true
}

// dim is a dimension of a tensor that is copied: its length, and how far apart neighbours are at the
// destination and at the source.
type dim struct{ n, dst, src int }

// dims returns the dimensions of a copy, without those of length 1. It appends to room.
func dims(room []dim, shape, dst, src []int) []dim {
	for i, n := range shape {
		if n != 1 {
			room = append(room, dim{n, dst[i], src[i]})
		}
	}
	return room
}

// merged returns dimensions without those that the one before goes on into, on both sides. It writes to
// its argument.
func merged(all []dim) []dim {
	out := all[:0]
	for _, d := range all {
		if k := len(out) - 1; k >= 0 && out[k].dst == d.n*d.dst && out[k].src == d.n*d.src {
			out[k] = dim{out[k].n * d.n, d.dst, d.src}
			continue
		}
		out = append(out, d)
	}
	return out
}

// distinct reports whether each element is sure to be at a place of its own: taken from the smallest
// stride on, each steps over all that the smaller ones reach. That is so of every view of a contiguous
// tensor; where it is not so, no two elements need be at one place all the same.
func distinct(shape, strides []int) bool {
	if slices.Contains(shape, 0) {
		return true
	}
	var room [8]dim
	all := dims(room[:0], shape, strides, strides)
	slices.SortFunc(all, func(a, b dim) int { return a.dst - b.dst })
	reach := 0 // how far the last element of the smaller strides is from the first
	for _, d := range all {
		if d.dst <= reach {
			return false
		}
		reach += (d.n - 1) * d.dst
	}
	return true
}
