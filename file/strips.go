package file

import (
	"math"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// strip is equal blocks of bytes at equal distances in the file.
type strip struct{ off, n, stride, count int64 }

// end returns the offset after the last block.
func (s strip) end() int64 { return s.off + (s.count-1)*s.stride + s.n }

// block is a block of bytes in the file, and where its bytes are in the buffer.
type block struct{ off, n, pos int64 }

// region is the bytes of the file that a rank reads or writes in a collective call, in ascending order.
type region struct {
	strips []strip
	bytes  int64
	pieces int64   // blocks that do not follow each other
	order  []block // ascending, if that is not the order of the buffer; else nil
}

// add appends the n bytes at off, which is not before the end of the region.
func (r *region) add(off, n int64) {
	r.bytes += n
	if len(r.strips) > 0 {
		s := &r.strips[len(r.strips)-1]
		switch {
		case s.count == 1 && off == s.off+s.n:
			s.n += n
			return
		case n == s.n && s.count == 1:
			s.stride = off - s.off
			fallthrough
		case n == s.n && off == s.off+s.count*s.stride:
			s.count++
			r.pieces++
			return
		}
	}
	r.strips = append(r.strips, strip{off, n, n, 1})
	r.pieces++
}

// regionOf returns the elements of a layout, of size bytes each, in a file from off on.
func regionOf(l cohort.Layout, off, size int64) (r region, err error) {
	last, sorted := off, true
	for displ, n := range l.Blocks() {
		if int64(displ)+int64(n) > (math.MaxInt64-off)/size {
			return region{}, backend.Faultf(cohort.ErrCount, "the layout ends after the last offset that a file can have")
		}
		at := off + int64(displ)*size
		if sorted = sorted && at >= last; sorted {
			r.add(at, int64(n)*size)
			last = at + int64(n)*size
		}
	}
	if sorted {
		return r, nil
	}
	r = region{}
	pos := int64(0)
	for displ, n := range l.Blocks() {
		b := block{off + int64(displ)*size, int64(n) * size, pos}
		r.order = append(r.order, b)
		pos += b.n
	}
	slices.SortFunc(r.order, func(a, b block) int {
		if a.off < b.off {
			return -1
		}
		return 1
	})
	for _, b := range r.order {
		r.add(b.off, b.n)
	}
	return r, nil
}

// ascending copies buf to sorted, which has the order of the file, or back. It ends where sorted ends.
func (r *region) ascending(sorted, buf []byte, back bool) {
	for _, b := range r.order {
		n := 0
		if part := buf[b.pos : b.pos+b.n]; back {
			n = copy(part, sorted)
		} else {
			n = copy(sorted, part)
		}
		sorted = sorted[n:]
	}
}

// hull returns the first byte of the region and the one after its last.
func (r *region) hull() (lo, hi int64) {
	if len(r.strips) == 0 {
		return 0, 0
	}
	return r.strips[0].off, r.strips[len(r.strips)-1].end()
}

// before returns how many bytes of the region lie before an offset.
func (r *region) before(off int64) (n int64) {
	c := cursor{strips: r.strips}
	return c.cut(off, func(strip) {})
}

// cursor walks through the strips of a region.
type cursor struct {
	strips []strip // what is left
	block  int64   // how many blocks of the first strip are done
	done   int64   // how many bytes of the block after these are done
}

// cut passes the bytes before an offset to do, in ascending order, and returns how many they are.
func (c *cursor) cut(end int64, do func(strip)) (bytes int64) {
	for len(c.strips) > 0 {
		s := &c.strips[0]
		at := s.off + c.block*s.stride + c.done
		if at >= end {
			break
		}
		whole := int64(0) // blocks
		if c.done == 0 && end-at >= s.n {
			whole = min((end-at-s.n)/s.stride+1, s.count-c.block)
		}
		if whole > 0 {
			do(strip{at, s.n, s.stride, whole})
			c.block += whole
			bytes += whole * s.n
		} else {
			n := min(s.n-c.done, end-at)
			do(strip{at, n, n, 1})
			bytes += n
			if c.done += n; c.done == s.n {
				c.block, c.done = c.block+1, 0
			}
		}
		if c.block == s.count {
			c.strips, c.block = c.strips[1:], 0
		}
	}
	return bytes
}
