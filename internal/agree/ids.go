package agree

import (
	"maps"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
)

// IDs hands out the context ids of communicators: numbers that are unique
// among the communicators that share a rank.
//
// To make a communicator, every member proposes a number, and every member claims the largest
// proposal. A claim fails if another communicator, made at the same time by another goroutine, has
// claimed the same number. Then all members try again (as MPICH does with its masks of free ids).
//
// No number is used twice, even after its communicator has been closed: a message of the old one may
// still be under way to a rank that has not closed it.
type IDs struct {
	mu      sync.Mutex
	last    uint32              // the largest id so far; the first communicator has 0
	making  []uint32            // of each agreement under way, what Begin has returned; ascending
	claimed map[uint32]struct{} // the claimed ids that are not below making[0]
}

// Begin is called when an agreement starts. It returns the smallest id that the agreement may claim: all that it proposes
// are larger than those claimed before.
func (s *IDs) Begin() (from uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from = s.last + 1
	s.making = append(s.making, from)
	return from
}

// End is called when the agreement is done for which Begin returned from. It returns the smallest id that any agreement
// may still claim.
func (s *IDs) End(from uint32) (below uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.making, from)
	s.making = slices.Delete(s.making, i, i+1)
	if below = s.last + 1; len(s.making) > 0 {
		below = s.making[0]
	}
	if below > from {
		maps.DeleteFunc(s.claimed, func(id uint32, _ struct{}) bool { return id < below })
	}
	return below
}

// Propose returns this rank's proposal. Attempts after the first add an offset that depends on salt,
// which is the same on all members. So two communicators that collide do not collide again forever.
func (s *IDs) Propose(attempt, salt uint32) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if attempt == 0 {
		return s.last + 1
	}
	spread := uint32(1) << min(attempt, 16)
	return s.last + 1 + (salt*2654435761+attempt*40503)>>7%spread
}

// Claim takes an id and reports whether it was free. The members get an error if they have agreed on a
// number beyond the last one.
func (s *IDs) Claim(id uint32) (bool, error) {
	if id >= ControlID {
		return false, backend.Faultf(backend.ErrAlloc, "all %d numbers for communicators have been used in this job: make communicators once, and keep them", uint32(ControlID))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.claimed[id]; taken {
		return false, nil
	}
	if s.claimed == nil {
		s.claimed = make(map[uint32]struct{})
	}
	s.claimed[id] = struct{}{}
	s.last = max(s.last, id)
	return true, nil
}
