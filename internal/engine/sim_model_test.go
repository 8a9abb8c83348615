package engine

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// check evaluates the operations of a rank that have ended.
func (s *sim) check(i int) {
	r := s.ranks[i]
	r.reqs = slices.DeleteFunc(r.reqs, func(q *simRequest) bool {
		if !q.Ready() {
			return false
		}
		s.ended(i, q)
		return true
	})
}

func (s *sim) ended(i int, q *simRequest) {
	s.say("rank %d: operation %d ends: %+v, %v", i, q.post, q.Status, q.Err)
	switch {
	case q.Err == nil:
	case errors.Is(q.Err, backend.ErrCanceled):
		if !q.canceled && !s.cancels {
			s.fail("rank %d: operation %d was not canceled: %v", i, q.post, q.Err)
		}
		return
	case s.faulty && slices.ContainsFunc([]error{backend.ErrPeerLost, backend.ErrBroken, backend.ErrClosed, backend.ErrMismatch},
		func(want error) bool { return errors.Is(q.Err, want) }):
		return
	default:
		s.fail("rank %d: operation %d: %v", i, q.post, q.Err)
	}
	if q.send {
		return
	}
	c := s.ranks[i].e.comms[uint32(q.ctx)]
	if c == nil {
		c = s.ranks[i].e.closing[uint32(q.ctx)]
	}
	if c == nil {
		return
	}
	from := c.World[q.Status.Source]
	if q.peer != backend.AnySource && q.peer != q.Status.Source || q.tag != backend.AnyTag && q.tag != q.Status.Tag {
		s.fail("rank %d: operation %d (source %d, tag %d) took %+v", i, q.post, q.peer, q.tag, q.Status)
	}
	s.message(i, from, q)
}

// message checks a message that was received.
func (s *sim) message(i, from int, q *simRequest) {
	flow := [4]int{from, i, q.ctx, q.Status.Tag}
	got := q.buf[:q.Status.Bytes]
	if len(got) < 8 { // it has no number
		return
	}
	seq := int(binary.LittleEndian.Uint32(got))
	want := make([]byte, len(got))
	simFill(want, flow, seq)
	if !slices.Equal(got, want) || seq < 1 || seq > s.seqs[flow] {
		s.fail("rank %d: operation %d received other bytes than number %d of %v", i, q.post, seq, flow)
	}
	key := [5]int{from, i, q.ctx, q.Status.Tag, seq}
	if post, twice := s.taken[key]; twice {
		s.fail("rank %d: message %v came twice, to operations %d and %d", i, key, post, q.post)
	}
	s.taken[key] = q.post
	if s.cancels {
		return // a canceled message may have held a receive that another one takes later
	}
	for k := 1; k <= s.seqs[flow]; k++ {
		key[4] = k
		if post, ok := s.taken[key]; ok && (k < seq) != (post < q.post) && k != seq {
			s.fail("rank %d: message %d of %v went to operation %d, and message %d to operation %d", i, seq, flow, q.post, k, post)
		}
	}
}

// settle checks what is left after the calm: operations that wait for what no rank does.
func (s *sim) settle() {
	for i, r := range s.ranks {
		if r.dead {
			continue
		}
		for _, q := range r.reqs {
			c := r.comms[q.ctx]
			if c == nil {
				s.fail("rank %d: operation %d has not ended, its communicator is closed", i, q.post)
			}
			if err := c.usable(); err != nil {
				s.fail("rank %d: operation %d has not ended, though %v", i, q.post, err)
			}
			if !q.send && q.peer >= 0 && c.isGone(q.peer) && c.World[q.peer] != i {
				s.fail("rank %d: operation %d has not ended, though rank %d is gone", i, q.post, c.World[q.peer])
			}
			if !q.send || s.faulty {
				continue
			}
			// A send ends unless it waits for a receive.
			if o, ok := q.Impl.(*op); !ok || o.state != opRequested {
				s.fail("rank %d: the send %d has not ended, in state %v", i, q.post, o)
			}
		}
	}
	// Without faults no receive waits for a message that has arrived.
	for i, r := range s.ranks {
		if r.dead {
			continue
		}
		r.e.posted.Each(func(n *match.Node) bool {
			if r.e.arrived.FindArrived(n.Env) != nil {
				s.fail("rank %d: a receive %+v waits, and its message has arrived", i, n.Env)
			}
			return true
		})
	}
}
