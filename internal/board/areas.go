package board

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// areas are those of all ranks for a communicator. A rank's data go there if they do not fit beside its slots.
type areas struct {
	of   []rankAreas // by rank
	next int         // where the own next area begins
}

// rankAreas are a rank's areas for this communicator, as far as they are known.
type rankAreas struct {
	index uint64 // of the rank's slots
	mem   []byte // nil: not known
}

// area returns where a rank's n bytes of this call are if they do not fit beside the slot either. If the rank's slots are
// not this communicator's any more, their number of an area may be anything, and what is read does not count (see unsound):
// then it is the own area, which is allocated.
func (s *Collective) area(r, n int) []byte {
	o, a := s.slots[r].Load(), &s.areas.of[r]
	facts := &s.slot(o).facts
	if i := facts[factArea]; a.mem == nil || a.index != i {
		if s.settle(); o.id.Load() != s.id {
			a = &s.areas.of[s.c.Rank()]
		} else {
			off, room := s.b.areas(s.ranks[r], int(i))
			*a = rankAreas{i, shmem.Slice[byte](s.b.cfg.Segment, off, room)}
		}
	}
	return a.mem[min(facts[factOffset], uint64(len(a.mem)-n)):][:n]
}

// reserve returns where this rank's area for n bytes of this call begins: after that of the call before. The lines that a
// rank overwrites have then left the first cache of the cores that have read them (docs/adr/0041).
func (s *Collective) reserve(n int) (off uint64) {
	s.areas.next = s.following(n)
	off = uint64(s.areas.next)
	s.areas.next += (n + line - 1) &^ (line - 1)
	return off
}

// following returns where the next area begins, if it is for n bytes.
func (s *Collective) following(n int) int {
	if s.areas.next+n > len(s.areas.of[s.c.Rank()].mem) {
		return 0
	}
	return s.areas.next
}

// allocate allocates this rank's areas if a call needs them.
func (s *Collective) allocate(call *backend.Call) error {
	me := s.c.Rank()
	if n := len(s.ranks); s.areas.of[me].mem != nil || call.Err != nil || direct.FitsSlot(call, n, slotData) || !direct.FitsSlot(call, n, s.b.area) {
		return nil
	}
	off, n := s.b.areas(s.b.cfg.Rank, s.index)
	if err := s.b.cfg.Segment.Allocate(off, n); err != nil {
		return &backend.Fault{Sentinel: backend.ErrAlloc, Text: "data of a collective: " + err.Error()}
	}
	s.areas.of[me] = rankAreas{uint64(s.index), shmem.Slice[byte](s.b.cfg.Segment, off, n)}
	return nil
}
