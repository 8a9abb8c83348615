package cohort

import (
	"fmt"
	"iter"
	"math"
	"slices"
)

// Layout says which elements of a slice belong to a [View], and in which order: blocks of equal length at
// equal distances in any number of dimensions, or blocks anywhere (the derived datatypes of MPI-4.1 section
// 5.1). The zero Layout has no elements. A Layout is not changed by its use, and any number of views and
// goroutines may share one.
type Layout struct {
	n   int // elements
	err error

	// The blocks have this length, and the first begins at offset. Each dimension, the outermost first,
	// repeats what the following ones describe.
	offset, block int
	dims          []dim

	ends, displs []int // of Indexed, instead: after how many elements each block ends, and where it begins
}

// dim is a dimension: how often it repeats how many elements, and at which distance.
type dim struct{ count, stride, inner int }

// Vector is count blocks of blocklen elements. Each block begins stride elements after the start of the one
// before (MPI_Type_vector). A column of a matrix with n columns is Vector(rows, 1, n).
//
// Errors: operations that use it return [ErrCount] for a negative number, for blocks that overlap, and for a
// last block that ends beyond what an int can count.
func Vector(count, blocklen, stride int) Layout {
	if count < 0 || blocklen < 0 || count > 1 && stride < blocklen {
		return badLayout("vector of count %d, blocklen %d, stride %d; want 0 or more, and a stride of a block or more", count, blocklen, stride)
	}
	return newLayout(0, blocklen, []dim{{count: count, stride: stride}})
}

// Subarray is a part of an array with the extents sizes: it begins at starts and has the extents subsizes
// (MPI_Type_create_subarray). The array's last dimension is contiguous. An array of no dimensions is one element.
//
// Errors: operations that use it return [ErrCount] if the part is not inside the array, or if it has elements and an
// int cannot count those of the array.
func Subarray(sizes, subsizes, starts []int) Layout {
	if len(subsizes) != len(sizes) || len(starts) != len(sizes) {
		return badLayout("subarray with %d sizes, %d subsizes, %d starts; want one of each for every dimension", len(sizes), len(subsizes), len(starts))
	}
	offset, stride, empty := 0, 1, slices.Contains(subsizes, 0)
	dims := make([]dim, len(sizes))
	for i := len(sizes) - 1; i >= 0; i-- {
		size, part, start := sizes[i], subsizes[i], starts[i]
		if part < 0 || start < 0 || start > size || part > size-start {
			return badLayout("subarray: %d elements from %d on are not inside dimension %d of %d elements", part, start, i, size)
		}
		dims[i] = dim{count: part, stride: stride}
		offset += start * stride
		if !empty && stride > math.MaxInt/size {
			return badLayout("subarray: an array of sizes %v has more elements than an int can count", sizes)
		}
		stride *= size
	}
	if empty {
		return Layout{}
	}
	return newLayout(offset, 1, dims)
}

// Indexed is blocks of the given lengths, which begin at displs (MPI_Type_indexed).
//
// Errors: operations that use it return [ErrCount] for a negative number, for blocks that overlap, and for
// slices of different lengths.
func Indexed(blocklens, displs []int) Layout {
	if len(blocklens) != len(displs) {
		return badLayout("indexed with %d blocklens and %d displs; want equally many", len(blocklens), len(displs))
	}
	l := Layout{ends: make([]int, len(displs)), displs: slices.Clone(displs)}
	var order []int // of the blocks with elements
	for i, n := range blocklens {
		if n < 0 || displs[i] < 0 || n > math.MaxInt-displs[i] || n > math.MaxInt-l.n {
			return badLayout("indexed: block %d has length %d at %d; want 0 or more, and an end that an int can count", i, n, displs[i])
		}
		if l.n += n; n > 0 {
			order = append(order, i)
		}
		l.ends[i] = l.n
	}
	slices.SortFunc(order, func(a, b int) int { return displs[a] - displs[b] })
	for k := 1; k < len(order); k++ {
		a, b := order[k-1], order[k]
		if displs[a]+blocklens[a] > displs[b] {
			return badLayout("blocks %d (%d at %d) and %d (%d at %d) overlap", a, blocklens[a], displs[a], b, blocklens[b], displs[b])
		}
	}
	return l
}

func badLayout(format string, args ...any) Layout {
	return Layout{err: fault(ErrCount, fmt.Sprintf(format, args...))}
}

// newLayout returns a layout of equal blocks, with the fewest dimensions.
func newLayout(offset, block int, dims []dim) Layout {
	l := Layout{n: block, offset: offset, block: block}
	for i := len(dims) - 1; i >= 0; i-- {
		d := dims[i]
		if d.count > 0 && l.n > math.MaxInt/d.count {
			return badLayout("%d times %d elements are more than an int can count", d.count, l.n)
		}
		d.inner = l.n
		l.n *= d.count
		switch {
		case d.count == 1:
		case len(l.dims) == 0 && d.stride == l.block: // the blocks are one
			l.block *= d.count
		default:
			l.dims = append(l.dims, d)
		}
	}
	if l.n == 0 {
		return Layout{}
	}
	slices.Reverse(l.dims)
	if !l.fits(math.MaxInt) {
		return badLayout("the last of %d elements is further away than an int can count", l.n)
	}
	return l
}

// Len returns the number of elements.
func (l Layout) Len() int { return l.n }

// Err returns an [ErrCount] if the layout was made with wrong arguments, or else nil.
func (l Layout) Err() error { return l.err }

// Blocks yields where each block of the layout begins, and its length, in the order of the elements. It may
// join adjacent blocks. A layout with an error has none.
func (l Layout) Blocks() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for i := range l.ends {
			if at, n := l.indexed(i); n > 0 && !yield(at, n) {
				return
			}
		}
		if l.ends == nil && l.n > 0 {
			blocks(l.offset, l.block, l.dims, yield)
		}
	}
}

func blocks(at, block int, dims []dim, yield func(int, int) bool) bool {
	if len(dims) == 0 {
		return yield(at, block)
	}
	for range dims[0].count {
		if !blocks(at, block, dims[1:], yield) {
			return false
		}
		at += dims[0].stride
	}
	return true
}

// fits reports whether all elements are in a slice of the given length.
func (l *Layout) fits(most int) bool {
	for i := range l.ends {
		if at, n := l.indexed(i); n > 0 && at+n > most {
			return false
		}
	}
	if l.ends != nil || l.n == 0 {
		return true
	}
	last := l.offset
	for _, d := range l.dims {
		if d.stride > most/(d.count-1) { // there are two at least
			return false
		}
		last += (d.count - 1) * d.stride
	}
	return last <= most && l.block <= most-last
}

// extent returns where the first element of a layout that fits a slice is, and where the last one ends.
func (l *Layout) extent() (lo, hi int) {
	if l.ends == nil {
		lo, hi = l.offset, l.offset+l.block
		for _, d := range l.dims {
			hi += (d.count - 1) * d.stride
		}
		return lo, hi
	}
	lo = math.MaxInt
	for at, n := range l.Blocks() {
		lo, hi = min(lo, at), max(hi, at+n)
	}
	return lo, hi
}

// indexed returns where block i of Indexed is, and its length.
func (l *Layout) indexed(i int) (at, n int) {
	if i == 0 {
		return l.displs[0], l.ends[0]
	}
	return l.displs[i], l.ends[i] - l.ends[i-1]
}

// transfer copies elements of a layout from buf to packed, or back: those after the first skip ones, until
// packed is used up. It returns what is left of packed.
func transfer[T any](packed, buf []T, at, skip int, dims []dim, block int, back bool) []T {
	if len(dims) == 0 {
		return packed[transferBlock(packed, buf[at+skip:at+block], back):]
	}
	d := &dims[0]
	i := skip / d.inner
	skip -= i * d.inner
	at += i * d.stride
	if len(dims) > 1 {
		for ; i < d.count && len(packed) > 0; i++ {
			packed = transfer(packed, buf, at, skip, dims[1:], block, back)
			skip = 0
			at += d.stride
		}
		return packed
	}
	if skip > 0 { // the rest of a block
		packed = packed[transferBlock(packed, buf[at+skip:at+block], back):]
		i++
		at += d.stride
	}
	n := min(d.count-i, len(packed)/block)
	transferBlocks(packed[:n*block], buf, at, block, d.stride, back)
	packed = packed[n*block:]
	if i += n; i < d.count {
		at += n * d.stride
		packed = packed[transferBlock(packed, buf[at:at+block], back):]
	}
	return packed
}

// transferBlocks copies whole blocks.
func transferBlocks[T any](packed, buf []T, at, block, stride int, back bool) {
	switch {
	case block == 1 && back:
		for _, x := range packed {
			buf[at] = x
			at += stride
		}
	case block == 1:
		for i := range packed {
			packed[i] = buf[at]
			at += stride
		}
	case block < 4: // too short for a call of copy
		for ; len(packed) >= block; packed = packed[block:] {
			for i, own := range buf[at : at+block] {
				if back {
					buf[at+i] = packed[i]
				} else {
					packed[i] = own
				}
			}
			at += stride
		}
	default:
		for ; len(packed) > 0; packed = packed[block:] {
			transferBlock(packed[:block], buf[at:at+block], back)
			at += stride
		}
	}
}

func transferBlock[T any](packed, block []T, back bool) int {
	if back {
		return copy(block, packed)
	}
	return copy(packed, block)
}

// move copies elements of a layout from buf to packed, or back: as many as packed has, from the one on that
// has the index first in the layout.
func move[T any](l *Layout, packed, buf []T, first int, back bool) {
	if l.ends == nil {
		transfer(packed, buf, l.offset, first, l.dims, l.block, back)
		return
	}
	i, _ := slices.BinarySearch(l.ends, first+1) // an empty block may be anywhere
	for ; i < len(l.ends) && len(packed) > 0; i++ {
		at, n := l.indexed(i)
		if n > 0 {
			skip := first - (l.ends[i] - n)
			packed = transfer(packed, buf, at, max(0, skip), nil, n, back)
		}
	}
}
