package file

import (
	"io"
	"iter"
	"math/bits"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// A collective transfer of many small pieces takes two phases (R. Thakur, W. Gropp, E. Lusk: Data Sieving and
// Collective I/O in ROMIO, 1999). The bytes between the first and the last one that any rank moves are divided
// into windows. Some ranks, the writers, take the windows in turn, one each in a round. To write, the other ranks
// send them the pieces that are inside, and the writers write what these cover, in requests as large as possible.
// To read, each writer reads a window, and sends every rank its pieces.
const (
	maxWriters = 4       // of a node
	stripe     = 1 << 20 // windows begin at multiples of it
	maxWindow  = 4 << 20
	// A transfer whose pieces are as long as this on average needs no exchange. Ranks of one node share the system's
	// cache of the file, and long requests only save them system calls. Between nodes, file systems lock and
	// send blocks of the file, which should not have bytes of several.
	longOnNode  = 16 << 10
	longOnNodes = 256 << 10
	// A transfer that moves fewer than one in so many of the bytes that the windows would have needs none either: there
	// is little to join.
	sparse = 4
)

// place finds out which ranks are writers, in ascending order.
func (s *shared) place(rank int, hosts []cohort.Host) {
	for _, h := range hosts {
		s.writers = append(s.writers, h.Ranks[:min(maxWriters, len(h.Ranks))]...)
		s.leader = s.leader || h.Ranks[0] == rank
	}
	slices.Sort(s.writers)
	s.long = longOnNode
	if len(hosts) > 1 {
		s.long = longOnNodes
	}
}

// transfer is a collective read or write.
type transfer struct {
	*shared
	m      *meeting
	write  bool
	region region
	buf    []byte // the region's bytes, in ascending order
	lo, hi int64  // all bytes of all ranks are between these
	end    int64  // and those that this rank moves to or from the file are before this
	wrong  *Error // what this rank met
}

// moved records the result of a request to the file for the bytes from off on.
func (t *transfer) moved(off int64, n int, err error) {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		t.wrong = t.m.fault(off+int64(n), t.end-off-int64(n), err)
	}
}

// at moves the bytes of p from or to the file, unless there was an error.
func (t *transfer) at(p []byte, off int64) {
	var n int
	var err error
	switch {
	case t.wrong != nil:
		return
	case t.write:
		n, err = t.file.WriteAt(p, off)
	default:
		n, err = t.file.ReadAt(p, off)
	}
	t.moved(off, n, err)
}

// direct moves the pieces of this rank one by one.
func (t *transfer) direct() {
	buf := t.buf
	_, hi := t.region.hull()
	t.end = min(t.hi, hi)
	c := cursor{strips: t.region.strips}
	c.cut(t.end, func(s strip) {
		for i := range s.count {
			t.at(buf[:s.n], s.off+i*s.stride)
			buf = buf[s.n:]
		}
	})
}

// piece is equal blocks of bytes at equal distances in a window.
type piece struct{ At, Len, Stride, Count uint32 }

// each passes the blocks of pieces to do, with their bytes, which follow each other in data.
func each(pieces []piece, data []byte, do func(at int, block []byte)) {
	for _, p := range pieces {
		for i := range int(p.Count) {
			do(int(p.At)+i*int(p.Stride), data[:p.Len])
			data = data[p.Len:]
		}
	}
}

// memory is kept from one transfer to the next.
type memory struct {
	window  []byte   // a window of the file
	data    []byte   // its pieces, by rank
	covered []uint64 // a bit for each byte of the window that is written
}

// room returns n elements of memory that is kept in p.
func room[T any](p *[]T, n int) []T {
	*p = slices.Grow((*p)[:0], n)
	return (*p)[:n]
}

// parts says how many elements a rank exchanges with each other rank, and where they are in its buffer.
type parts struct{ counts, displs []int }

func partsFor(ranks int) parts { return parts{make([]int, ranks), make([]int, ranks)} }

// exchange moves the pieces of all ranks through the writers. In each round:
//
//  1. Each rank cuts what it has in the windows of the round, and tells the writers the pieces.
//  2. To write, it sends their bytes, and each writer writes its window.
//  3. To read, each writer reads its window, and sends the bytes of the pieces.
func (t *transfer) exchange() error {
	c, n := t.m.c, t.m.c.Size()
	writers := int64(len(t.writers))
	begin := t.lo - t.lo%stripe
	rounds := (t.hi - begin + writers*maxWindow - 1) / (writers * maxWindow)
	size := (t.hi - begin + writers*rounds - 1) / (writers * rounds)
	size = (size + stripe - 1) / stripe * stripe
	t.end = t.hi
	walk := cursor{strips: t.region.strips}
	rest := t.buf
	var pieces []piece
	asks := make([]int, n) // pieces, by writer
	out, in := partsFor(n), partsFor(n)
	asked, bytes := make([][]piece, n), make([][]byte, n) // of this rank's window, by rank
	for round := range rounds {
		pieces = pieces[:0]
		used, low, own := 0, int64(0), []byte(nil)
		for i, w := range t.writers {
			at, first := begin+(round*writers+int64(i))*size, len(pieces)
			moved := int(walk.cut(min(at+size, t.hi), func(s strip) {
				pieces = append(pieces, piece{uint32(s.off - at), uint32(s.n), uint32(s.stride), uint32(s.count)})
			}))
			asks[w], out.counts[w], out.displs[w] = len(pieces)-first, moved, used
			if w == c.Rank() { // its bytes need no message
				low, own, out.counts[w] = at, rest[used:used+moved], 0
			}
			used += moved
		}
		all, counts, err := cohort.AlltoallvAlloc(c, pieces, asks)
		if err != nil {
			return err
		}
		wanted := len(all) > 0
		total := 0
		for r, k := range counts {
			asked[r], all = all[:k], all[k:]
			in.counts[r], in.displs[r] = 0, total
			for _, p := range asked[r] {
				in.counts[r] += int(p.Len) * int(p.Count)
			}
			if r == c.Rank() {
				in.counts[r] = 0
			}
			total += in.counts[r]
		}
		data := room(&t.memory.data, total)
		for r := range bytes {
			bytes[r] = data[in.displs[r]:][:in.counts[r]]
		}
		bytes[c.Rank()] = own
		if t.write {
			err = cohort.Alltoallv(c, rest[:used], out.counts, out.displs, data, in.counts, in.displs)
		}
		if err == nil && wanted {
			t.move(low, int(size), asked, bytes)
		}
		if !t.write {
			err = cohort.Alltoallv(c, data, in.counts, in.displs, rest[:used], out.counts, out.displs)
		}
		if err != nil {
			return err
		}
		rest = rest[used:]
	}
	return nil
}

// move writes the pieces of a window at low, or reads them.
func (t *transfer) move(low int64, size int, asked [][]piece, bytes [][]byte) {
	window := room(&t.memory.window, size)
	if !t.write {
		from, to := size, 0
		for _, p := range slices.Concat(asked...) {
			from, to = min(from, int(p.At)), max(to, int(p.At)+int(p.Count-1)*int(p.Stride)+int(p.Len))
		}
		t.at(window[from:to], low+int64(from))
		for r, pieces := range asked {
			each(pieces, bytes[r], func(at int, block []byte) { copy(block, window[at:]) })
		}
		return
	}
	covered := room(&t.memory.covered, (size+63)/64)
	clear(covered)
	for r, pieces := range asked {
		each(pieces, bytes[r], func(at int, block []byte) {
			copy(window[at:], block)
			cover(covered, at, at+len(block))
		})
	}
	for from, to := range runs(covered, size) {
		t.at(window[from:to], low+int64(from))
	}
}

// cover sets the bits from one on and before another, which is greater.
func cover(set []uint64, from, to int) {
	first, last := from/64, (to-1)/64
	head, tail := ^uint64(0)<<(from%64), ^uint64(0)>>(63-(to-1)%64)
	if first == last {
		set[first] |= head & tail
		return
	}
	set[first] |= head
	for i := first + 1; i < last; i++ {
		set[i] = ^uint64(0)
	}
	set[last] |= tail
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
