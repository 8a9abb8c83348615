package tensor

import (
	"runtime"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/internal/view"
)

// blit copies memory that does not overlap. It copies long memory with several threads, because one
// alone does not use the full memory bandwidth.
func blit(dst, src []byte) {
	const (
		least = 1 << 20 // bytes per goroutine
		most  = 4       // threads
	)
	parts := min(len(src)/least, most)
	if parts > 1 {
		parts = min(parts, runtime.GOMAXPROCS(0))
	}
	if parts <= 1 {
		copy(dst, src)
		return
	}
	blitParts(dst, src, parts)
}

// blitParts is blit with several threads, each copying whole cache lines.
func blitParts(dst, src []byte, parts int) {
	const line = 64
	each := len(src) / parts / line * line
	var others sync.WaitGroup
	for i := 1; i < parts; i++ {
		lo, hi := i*each, (i+1)*each
		if i == parts-1 {
			hi = len(src)
		}
		others.Go(func() { copy(dst[lo:hi], src[lo:hi]) })
	}
	copy(dst[:each], src[:each])
	others.Wait()
}

// pack copies elements of a size between memory that does not overlap. Strides are in elements, and
// no two elements of the destination share memory.
//
//  1. The order in which elements are copied is free. Dimensions are sorted by the destination's
//     strides, so that writes are sequential, and adjacent dimensions that form one on both sides
//     are merged.
//  2. If the last dimension has no gaps on either side, it is copied as a whole.
//  3. Otherwise the dimension with the source's smallest stride becomes the last but one, and the
//     last two are copied in tiles that fit in the cache: a transpose.
func pack(dst, src []byte, size int, shape, to, from []int) {
	var room [8]dim
	all := dims(room[:0], shape, to, from)
	slices.SortFunc(all, func(a, b dim) int {
		if a.dst != b.dst {
			return b.dst - a.dst
		}
		return b.src - a.src
	})
	all = merged(all)
	if k := len(all) - 1; k > 0 {
		near := k
		for i, d := range all[:k] {
			if d.src < all[near].src {
				near = i
			}
		}
		if near < k-1 { // move it to k-1, and those behind it one forward
			d := all[near]
			copy(all[near:], all[near+1:k])
			all[k-1] = d
		}
	}
	switch size {
	case 1:
		packAs(dst, src, all)
	case 2:
		packAs(view.Of[uint16](dst), view.Of[uint16](src), all)
	case 4:
		packAs(view.Of[uint32](dst), view.Of[uint32](src), all)
	case 8:
		packAs(view.Of[uint64](dst), view.Of[uint64](src), all)
	default: // 16
		packAs(view.Of[[2]uint64](dst), view.Of[[2]uint64](src), all)
	}
}

// packAs copies the sorted dimensions, as a type of the elements' size.
func packAs[E any](dst, src []E, all []dim) {
	switch len(all) {
	case 0:
		dst[0] = src[0]
	case 1:
		packRow(dst, src, all[0])
	case 2:
		packTiles(dst, src, all[0], all[1])
	default:
		for i := range all[0].n {
			packAs(dst[i*all[0].dst:], src[i*all[0].src:], all[1:])
		}
	}
}

func packRow[E any](dst, src []E, d dim) {
	from := 0
	switch {
	case d.dst == 1 && d.src == 1:
		copy(dst[:d.n], src[:d.n])
	case d.dst == 1:
		for i := range dst[:d.n] {
			dst[i] = src[from]
			from += d.src
		}
	default:
		to := 0
		for range d.n {
			dst[to] = src[from]
			to, from = to+d.dst, from+d.src
		}
	}
}

func packTiles[E any](dst, src []E, a, b dim) {
	if b.dst == 1 && b.src == 1 {
		for i := range a.n {
			copy(dst[i*a.dst:][:b.n], src[i*a.src:][:b.n])
		}
		return
	}
	const edge = 16 // more lines a power of two apart would evict each other
	for i := 0; i < a.n; i += edge {
		for j := 0; j < b.n; j += edge {
			row := dim{min(edge, b.n-j), b.dst, b.src}
			for k := i; k < min(i+edge, a.n); k++ {
				packRow(dst[k*a.dst+j*b.dst:], src[k*a.src+j*b.src:], row)
			}
		}
	}
}
