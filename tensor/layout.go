package tensor

import (
	"math"
	"math/bits"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/view"
)

// This file has arithmetic on shapes and strides, for all types.

// elements returns the number of elements of a shape. A shape without elements must still have
// lengths whose product is in range, so that strides never overflow.
func elements[T cohort.Number](shape []int) (int, error) { return count(shape, view.Size[T]()) }

// count returns the number of elements of a shape, given the size of one element in bytes.
func count(shape []int, size int) (int, error) {
	n, empty := uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, fault(cohort.ErrCount, "shape %v has a negative length", slices.Clone(shape))
		}
		if d == 0 {
			empty = true
			continue
		}
		over, m := bits.Mul64(n, uint64(d))
		if over != 0 || m > uint64(math.MaxInt/size) {
			return 0, fault(cohort.ErrCount, "shape %v has too many elements", slices.Clone(shape))
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

// extent returns the number of elements from the first of a tensor to its last, including gaps, or
// math.MaxInt on overflow. Strides are not negative.
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

// contiguous reports whether strides are those of a tensor without gaps. Strides of dimensions of
// length 1 do not matter.
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

// dim is a dimension of a copy: its length, and the strides of destination and source.
type dim struct{ n, dst, src int }

// dims appends the dimensions of a copy to room, without those of length 1.
func dims(room []dim, shape, dst, src []int) []dim {
	for i, n := range shape {
		if n != 1 {
			room = append(room, dim{n, dst[i], src[i]})
		}
	}
	return room
}

// merged joins adjacent dimensions that form one on both sides. It overwrites its argument.
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

// distinct reports whether all elements certainly have different positions: in order of size, each
// stride steps over everything that the smaller ones reach. This holds for every view of a
// contiguous tensor. Where it does not hold, the elements may still be distinct.
func distinct(shape, strides []int) bool {
	if slices.Contains(shape, 0) {
		return true
	}
	var room [8]dim
	all := dims(room[:0], shape, strides, strides)
	slices.SortFunc(all, func(a, b dim) int { return a.dst - b.dst })
	reach := 0 // distance from the first element to the last, over the smaller strides
	for _, d := range all {
		if d.dst <= reach {
			return false
		}
		reach += (d.n - 1) * d.dst
	}
	return true
}
