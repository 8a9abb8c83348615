package file

import (
	"io"
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
	// A transfer whose pieces are as long as this on average needs no exchange.
	longPiece = 64 << 10
	// A transfer that moves fewer than one in so many of the bytes that the windows would have needs none either: there
	// is little to join.
	sparse = 4
)

// place finds out which ranks are writers: some of each node, which take turns. So they are the same on all ranks.
func (s *shared) place(rank int, hosts []cohort.Host) {
	for i := range maxWriters {
		for _, h := range hosts {
			if i < len(h.Ranks) {
				s.writers = append(s.writers, h.Ranks[i])
			}
			s.leader = s.leader || h.Ranks[0] == rank
		}
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

// amount is how many pieces a rank has in a window, and their bytes.
type amount struct{ Pieces, Bytes int32 }

// memory is kept from one transfer to the next.
type memory struct {
	window  []byte   // a window of the file
	data    []byte   // its pieces, by rank
	covered []uint64 // a bit for each byte of the window that is written
}

// room returns n bytes of memory that is kept in p.
func room[T any](p *[]T, n int) []T {
	*p = slices.Grow((*p)[:0], n)
	return (*p)[:n]
}

// exchange moves the pieces of all ranks through the writers.
func (t *transfer) exchange() error {
	c, n := t.m.c, t.m.c.Size()
	t.end = t.hi
	writers := int64(len(t.writers))
	begin := t.lo - t.lo%stripe
	rounds := (t.hi - begin + writers*maxWindow - 1) / (writers * maxWindow)
	size := (t.hi - begin + writers*rounds - 1) / (writers * rounds)
	size = (size + stripe - 1) / stripe * stripe
	at := slices.Index(t.writers, c.Rank()) // -1: no writer
	walk := cursor{strips: t.region.strips}
	rest := t.buf

	mine, theirs := make([]amount, n), make([]amount, n) // by rank
	var pieces, asked []piece
	counts := make([]int, 8*n)
	part := func() (p []int) { p, counts = counts[:n:n], counts[n:]; return p }
	pieceCounts, pieceAt, askedCounts, askedAt, counts1, displs1, counts2, displs2 := part(), part(), part(), part(), part(), part(), part(), part()
	for round := range rounds {
		pieces = pieces[:0]
		buf := rest
		used := 0
		var own []piece
		var ownBuf []byte
		for i, w := range t.writers {
			low := begin + (round*writers+int64(i))*size
			first := len(pieces)
			got := int(walk.cut(min(low+size, t.hi), func(s strip) {
				pieces = append(pieces, piece{uint32(s.off - low), uint32(s.n), uint32(s.stride), uint32(s.count)})
			}))
			mine[w], pieceCounts[w], pieceAt[w] = amount{int32(len(pieces) - first), int32(got)}, len(pieces)-first, first
			counts1[w], displs1[w] = got, used
			if w == c.Rank() { // needs no message
				own, ownBuf = pieces[first:], buf[used:used+got]
				mine[w], pieceCounts[w], counts1[w] = amount{}, 0, 0
			}
			used += got
		}
		rest = rest[used:]
		if err := cohort.Alltoall(c, mine, theirs); err != nil {
			return err
		}
		npieces, nbytes := 0, 0
		for r, a := range theirs {
			askedCounts[r], askedAt[r] = int(a.Pieces), npieces
			counts2[r], displs2[r] = int(a.Bytes), nbytes
			npieces, nbytes = npieces+int(a.Pieces), nbytes+int(a.Bytes)
		}
		asked = slices.Grow(asked[:0], npieces)[:npieces]
		if err := cohort.Alltoallv(c, pieces, pieceCounts, pieceAt, asked, askedCounts, askedAt); err != nil {
			return err
		}
		data := room(&t.memory.data, nbytes)
		low := begin + (round*writers+int64(at))*size
		if t.write {
			if err := cohort.Alltoallv(c, buf[:used], counts1, displs1, data, counts2, displs2); err != nil {
				return err
			}
			if len(asked)+len(own) > 0 {
				t.put(low, int(size), own, ownBuf, asked, data)
			}
			continue
		}
		if len(asked)+len(own) > 0 {
			t.get(low, int(size), own, ownBuf, asked, data)
		}
		if err := cohort.Alltoallv(c, data, counts2, displs2, buf[:used], counts1, displs1); err != nil {
			return err
		}
	}
	return nil
}

// put writes the pieces of a window at low.
func (t *transfer) put(low int64, size int, own []piece, ownData []byte, asked []piece, data []byte) {
	window := room(&t.memory.window, size)
	covered := room(&t.memory.covered, (size+63)/64)
	clear(covered)
	for _, list := range [2]struct {
		pieces []piece
		data   []byte
	}{{own, ownData}, {asked, data}} {
		for _, p := range list.pieces {
			at := int(p.At)
			for range p.Count {
				copy(window[at:at+int(p.Len)], list.data)
				cover(covered, at, at+int(p.Len))
				list.data = list.data[p.Len:]
				at += int(p.Stride)
			}
		}
	}
	for from, to := range runs(covered, size) {
		t.at(window[from:to], low+int64(from))
	}
}

// get reads the pieces of a window at low.
func (t *transfer) get(low int64, size int, own []piece, ownData []byte, asked []piece, data []byte) {
	from, to := size, 0
	for _, pieces := range [][]piece{own, asked} {
		for _, p := range pieces {
			from, to = min(from, int(p.At)), max(to, int(p.At)+int(p.Count-1)*int(p.Stride)+int(p.Len))
		}
	}
	window := room(&t.memory.window, size)
	t.at(window[from:to], low+int64(from))
	for _, list := range [2]struct {
		pieces []piece
		data   []byte
	}{{own, ownData}, {asked, data}} {
		for _, p := range list.pieces {
			at := int(p.At)
			for range p.Count {
				copy(list.data, window[at:at+int(p.Len)])
				list.data = list.data[p.Len:]
				at += int(p.Stride)
			}
		}
	}
}

// cover sets the bits from one on and before another.
func cover(set []uint64, from, to int) {
	for from < to {
		n := min(64-from%64, to-from)
		set[from/64] |= (1<<n - 1) << (from % 64)
		from += n
	}
}

// runs yields where the bits of a set of n are 1: from one on and before another.
func runs(set []uint64, n int) func(yield func(from, to int) bool) {
	// next returns the first place from i on where a bit is not that of skip, or n.
	next := func(i int, skip uint64) int {
		for i < n {
			if word := (set[i/64] ^ skip) >> (i % 64); word != 0 {
				return min(n, i+bits.TrailingZeros64(word))
			}
			i += 64 - i%64
		}
		return n
	}
	return func(yield func(from, to int) bool) {
		for to := 0; ; {
			from := next(to, 0)
			if from == n {
				return
			}
			to = next(from, ^uint64(0))
			if !yield(from, to) {
				return
			}
		}
	}
}
