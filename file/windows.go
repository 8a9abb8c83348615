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
	windows [][2]window // of each writer whose windows this rank shares, by rank; used in alternate rounds
	size    int         // of a window, in bytes
	data    []byte      // what ranks that share no window with this one send, or receive
}

// window is memory for a part of the file, and a bit for each of its bytes: 1 if a rank moves the byte. To read, only the
// first byte of each rank and its last one are marked. All bits are 0 when a round begins to use the window.
type window struct {
	bytes []byte
	moved []uint64
}

// prepare makes windows of size bytes or more, which the ranks of a node share.
func (t *transfer) prepare(size int) error {
	m := &t.memory
	if size <= m.size {
		return nil
	}
	if err := m.region.Close(); err != nil {
		t.m.c.Close() // others may have closed it, and would wait for this rank to make the next one
		return err
	}
	*m = memory{windows: make([][2]window, t.m.c.Size())}
	size = max(64, 1<<bits.Len(uint(size-1)))
	words := size/8 + size/64
	region, err := cohort.NewSharedRegion[uint64](t.m.c, t.most*2*words)
	if errors.Is(err, cohort.ErrAlloc) { // on all ranks
		if slices.Contains(t.near, t.m.c.Rank()) {
			m.windows[t.m.c.Rank()] = split(make([]uint64, 2*words), words)
		}
		m.size = size
		return nil
	}
	if err != nil {
		t.m.c.Close() // others may have the region, and would wait for this rank
		return err
	}
	m.region, m.size = region, size
	for i, w := range t.near {
		two, err := region.Range(i*2*words, (i+1)*2*words)
		if err != nil {
			return err
		}
		m.windows[w] = split(two, words)
	}
	return nil
}

// split makes two windows of memory, each of the given number of words.
func split(two []uint64, words int) (w [2]window) {
	for i := range w {
		all := two[i*words : (i+1)*words]
		n := words / 9 * 8
		w[i] = window{view.Bytes(all[:n]), all[n:]}
	}
	return w
}

// room returns n elements of memory that is kept in p.
func room[T any](p *[]T, n int) []T {
	*p = slices.Grow((*p)[:0], n)
	return (*p)[:n]
}

// cover sets the bits from to to-1, of which there is at least one. Several ranks may do so at once.
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

// runs yields the runs of 1 among the first n bits of a set: each begins at from, and to is the bit after it.
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
