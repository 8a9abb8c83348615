package memlink

import (
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// sender is the sending end of a direction.
type sender struct {
	r    *ring
	data []byte
	tail uint32 // cells written
	head uint32 // cells the receiver has taken, as last seen
	pos  uint64 // bytes of the data ring used since the start, gaps at the end included
	free uint64 // the part of pos that the receiver has given back
	ends [cells]uint64
}

// receiver is the receiving end.
type receiver struct {
	r        *ring
	data     []byte
	next     uint32 // cells taken
	acked    uint32 // of those, how many head reports
	pos      uint64
	ackedPos uint64
}

// place returns the next n bytes of a data ring of which pos bytes have been used, and what pos is after them: they
// never wrap around. Both ends compute it alike.
func place(data []byte, pos uint64, n int) (b []byte, end uint64) {
	off := int(pos % uint64(len(data)))
	if off+n > len(data) {
		pos, off = pos+uint64(len(data)-off), 0
	}
	return data[off : off+n], pos + uint64((n+line-1)&^(line-1))
}

// cell returns the next cell, nil if the ring is full.
func (s *sender) cell() *cell {
	if s.tail-s.head >= cells {
		s.refresh()
		if s.tail-s.head >= cells {
			return nil
		}
	}
	return &s.r.cells[s.tail%cells]
}

// room returns the place for n bytes in the data ring, nil if there is none.
func (s *sender) room(n int) []byte {
	b, end := place(s.data, s.pos, n)
	if end-s.free > uint64(len(s.data)) {
		s.refresh()
		if end-s.free > uint64(len(s.data)) {
			return nil
		}
	}
	s.pos = end
	word.Writes(b)
	return b
}

// refresh reads what the receiver has taken. It ignores a head that is out of range.
func (s *sender) refresh() {
	h := s.r.head.Load()
	if h == s.head || h-s.head > s.tail-s.head {
		return
	}
	s.free = s.ends[(h-1)%cells]
	s.head = h
}

// publish hands the cell over with a plain store. An atomic exchange would wait for the stores before it, and
// meanwhile the receiver, which polls the cell, would take the cache line away. An atomic operation must come later,
// before the sender looks whether the peer sleeps.
func (s *sender) publish(c *cell) {
	s.ends[s.tail%cells] = s.pos
	s.tail++
	word.Writing(c)
	word.ReleaseUint32(&c.seq, s.tail)
}

// own asks for the cache line of the next cell. Otherwise the next lock or unlock would wait until the store to the
// cell is done, and so until the receiver's processor has given the line up.
func (s *sender) own() { shmem.Own(&s.r.cells[s.tail%cells].seq) }

// ownRoom asks for the lines that the next n bytes of the data ring take.
func (s *sender) ownRoom(n int) {
	b, _ := place(s.data, s.pos, n)
	shmem.OwnAll(b)
}

// peek returns the next cell that has arrived, or nil.
func (r *receiver) peek() *cell {
	if c := &r.r.cells[r.next%cells]; word.LoadUint32(&c.seq) == r.next+1 {
		word.Reading(c)
		return c
	}
	return nil
}

// piece returns the next n bytes of the data ring; n is at most its length.
func (r *receiver) piece(n int) []byte {
	b, _ := place(r.data, r.pos, n)
	word.Reads(b)
	return b
}

// take gives back a cell and n bytes of the data ring. It reports whether the sender can see that now;
// the sender may be waiting for it.
func (r *receiver) take(n int) (acked bool) {
	r.next++
	if n > 0 {
		_, r.pos = place(r.data, r.pos, n)
	} else { // another short message may follow closely, and one behind it, whose line comes while that one is received
		shmem.Fetch(&r.r.cells[(r.next+1)%cells].seq)
	}
	if r.next-r.acked < cells/4 && r.pos-r.ackedPos < uint64(len(r.data))/4 {
		return false
	}
	r.acked, r.ackedPos = r.next, r.pos
	r.r.head.Store(r.next)
	return true
}
