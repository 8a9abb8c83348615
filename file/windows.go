package file

import (
	"errors"
	"iter"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/view"
)

// memory is kept from one transfer to the next.
type memory struct {
	region  *cohort.SharedRegion[uint64]
	windows [][2]window // of each writer whose windows this rank shares, by rank; they take turns
	size    int         // of a window, in bytes
	data    []byte      // what ranks that share no window with this one send, or receive
}

// window is memory for a part of the file, and a bit for each byte that a rank moves. To read, only the first byte of
// each rank and its last one have a bit. The bits are all 0 when the window's turn comes.
type window struct {
	bytes []byte
	moved []uint64
}

// prepare makes windows of so many bytes, which the ranks of a node share.
func (t *transfer) prepare(size int) error {
	m := &t.memory
	if size <= m.size {
		return nil
	}
	if err := m.region.Close(); err != nil {
		return err
	}
	size = max(64, 1<<bits.Len(uint(size-1)))
	*m = memory{windows: make([][2]window, t.m.c.Size()), size: size}
	const per = 2 // windows of a writer
	words := size/8 + size/64
	region, err := cohort.NewSharedRegion[uint64](t.m.c, t.most*per*words)
	switch {
	case err == nil:
		m.region = region
	case !errors.Is(err, cohort.ErrAlloc):
		return err
	}
	for i, w := range t.near {
		var all []uint64
		if m.region != nil {
			all, err = m.region.Range(i*per*words, (i+1)*per*words)
		} else if all, err = nil, nil; w == t.m.c.Rank() { // the pieces go by messages
			all = make([]uint64, per*words)
		}
		if err != nil {
			return err
		}
		for k := range m.windows[w] {
			if all != nil {
				m.windows[w][k] = window{view.Bytes(all[:size/8]), all[size/8 : words]}
				all = all[words:]
			}
		}
	}
	return nil
}

// room returns n elements of memory that is kept in p.
func room[T any](p *[]T, n int) []T {
	*p = slices.Grow((*p)[:0], n)
	return (*p)[:n]
}

// cover sets the bits from one on and before another, which is greater. Several ranks may do so at once.
func cover(set []uint64, from, to int) {
	first, last := from/64, (to-1)/64
	head, tail := ^uint64(0)<<(from%64), ^uint64(0)>>(63-(to-1)%64)
	if first == last {
		atomic.OrUint64(&set[first], head&tail)
		return
	}
	atomic.OrUint64(&set[first], head)
	for i := first + 1; i < last; i++ {
		set[i] = ^uint64(0)
	}
	atomic.OrUint64(&set[last], tail)
}

// runs yields where the bits of a set of n are 1: from one on and before another.
func runs(set []uint64, n int) iter.Seq2[int, int] {
	// next returns the first place from i on where a bit is not that of skip, or n.
	next := func(i int, skip uint64) int {
		mask := ^uint64(0) << (i % 64)
		for at := i / 64; at < len(set); at++ {
			if word := (set[at] ^ skip) & mask; word != 0 {
				return min(n, at*64+bits.TrailingZeros64(word))
			}
			mask = ^uint64(0)
		}
		return n
	}
	return func(yield func(from, to int) bool) {
		for from := next(0, 0); from < n; {
			to := next(from, ^uint64(0))
			if !yield(from, to) {
				return
			}
			from = next(to, 0)
		}
	}
}
