package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// check evaluates the operations of a rank that have ended.
func (s *sim) check(i int) {
	r := s.ranks[i]
	if !s.loss && (len(r.e.membership.LostList) > 0 || r.e.excluded) {
		s.fail("rank %d has lost ranks %v (%v), and nothing has happened to them; excluded: %v", i, r.e.membership.LostList, r.e.losses, r.e.excluded)
	}
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
	if err := q.Err; err != nil {
		closed := s.leaves || slices.Contains(s.closed[q.ctx][:], true)
		switch {
		case errors.Is(err, backend.ErrTimeout) && q.late:
		case errors.Is(err, backend.ErrTruncate) && !q.send && q.Status.Bytes == simLong && len(q.buf) < simLong:
			s.flow([4]int{i, i, q.ctx, q.Status.Tag}).taken++
		case errors.Is(err, backend.ErrCanceled) && q.matched && (closed || s.loss || s.broke[q.ctx]): // the sender ended it
		case errors.Is(err, backend.ErrCanceled) && (q.canceled || s.cancels && q.matched || s.gaveUp && !q.send): // by this rank, or the sender
			if q.send {
				s.flow([4]int{i, s.ranks[i].e.comms[uint32(q.ctx)].World[q.peer], q.ctx, q.tag}).canceled++
			}
		case errors.Is(err, backend.ErrPeerLost) && (s.loss || closed):
		case (errors.Is(err, backend.ErrBroken) || errors.Is(err, backend.ErrMismatch)) && s.broke[q.ctx]:
		case errors.Is(err, backend.ErrClosed) && (s.leaves || s.closed[q.ctx][i]):
		default:
			s.fail("rank %d: operation %d: %v", i, q.post, err)
		}
		return
	}
	if q.send {
		return
	}
	c := s.ranks[i].e.comms[uint32(q.ctx)]
	if c == nil {
		return
	}
	from := c.World[q.Status.Source]
	if q.peer != backend.AnySource && q.peer != q.Status.Source || q.tag != backend.AnyTag && q.tag != q.Status.Tag {
		s.fail("rank %d: operation %d (source %d, tag %d) took %+v", i, q.post, q.peer, q.tag, q.Status)
	}
	s.message(i, from, q)
}

// simFlow is the messages of one sender to one receiver with one context and tag.
type simFlow struct {
	word            uint64 // that every message contains, with its number
	sent            []int  // by number: post of the receive that has taken it, 0: none has
	taken, canceled int
}

func (s *sim) flow(key [4]int) *simFlow {
	f := s.flows[key]
	if f == nil {
		f = &simFlow{word: uint64(key[0])<<56 | uint64(key[1])<<48 | uint64(key[2])<<40 | uint64(key[3])<<32}
		s.flows[key] = f
	}
	return f
}

// fill writes the contents of a message: its word, as often as there is room for it.
func (f *simFlow) fill(b []byte, number int) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], f.word|uint64(number))
	n := copy(b, word[:])
	for n > 0 && n < len(b) {
		n += copy(b[n:], b[:n])
	}
}

// message checks a message that was received.
func (s *sim) message(i, from int, q *simRequest) {
	f := s.flow([4]int{from, i, q.ctx, q.Status.Tag})
	f.taken++
	got := q.buf[:q.Status.Bytes]
	if len(got) < 8 { // it has no number
		return
	}
	n := int(binary.LittleEndian.Uint32(got))
	if binary.LittleEndian.Uint64(got) != f.word|uint64(n) || !bytes.Equal(got[8:], got[:len(got)-8]) || n < 1 || n > len(f.sent) {
		s.fail("rank %d: operation %d received other bytes than number %d from rank %d: % x", i, q.post, n, from, got[:8])
	}
	if post := f.sent[n-1]; post != 0 {
		s.fail("rank %d: message %d from rank %d came twice, to operations %d and %d", i, n, from, post, q.post)
	}
	f.sent[n-1] = q.post
	for k, post := range f.sent {
		if post != 0 && (k < n-1) != (post < q.post) && k != n-1 {
			s.fail("rank %d: of rank %d message %d went to operation %d, and message %d to operation %d", i, from, n, q.post, k+1, post)
		}
	}
}

// settle checks what is left after the calm.
func (s *sim) settle() {
	for i, r := range s.ranks {
		if r.dead || r.stopped || r.left {
			continue
		}
		if n := len(r.e.early); n > 0 {
			s.fail("rank %d keeps notices of %d communicators that it has closed", i, n)
		}
		for _, q := range []func(func(*match.Node) bool){r.e.arrived.Each, r.e.posted.Each} {
			q(func(n *match.Node) bool {
				if r.comms[n.Env.Ctx] == nil {
					s.fail("rank %d keeps a message or receive %+v of a communicator that it has closed", i, n.Env)
				}
				return true
			})
		}
		for ctx, c := range r.comms {
			if c != nil && s.sure && c.fault.Load() == nil {
				s.fail("rank %d does not know that a rank is lost", i)
			}
			if c != nil && s.broke[ctx] && !s.loss && !s.unheard && c.Broken() == nil {
				s.fail("rank %d does not know that %d is broken", i, ctx)
			}
		}
		if z := s.sleepers[i]; z.asleep && z.waiting.Ready() {
			s.fail("rank %d sleeps, and its operation %d has ended", i, z.waiting.post)
		}
		for _, q := range r.reqs {
			s.remains(i, q)
		}
	}
	if s.faulty {
		return
	}
	// Without faults every message is somewhere, and no receive waits for one that has arrived.
	arrived := map[[4]int]int{}
	for i, r := range s.ranks {
		r.e.posted.Each(func(n *match.Node) bool {
			if r.e.arrived.FindArrived(n.Env) != nil {
				s.fail("rank %d: a receive %+v waits, and its message has arrived", i, n.Env)
			}
			return true
		})
		r.e.arrived.Each(func(n *match.Node) bool {
			if m := n.Owner.(*msg); m.kind == msgExposed && !r.e.peers[n.Env.Source].mem.Announced(m.token) {
				return true // its sender has canceled it
			}
			arrived[[4]int{int(n.Env.Source), i, int(n.Env.Ctx), int(n.Env.Tag)}]++
			return true
		})
	}
	for key, f := range s.flows {
		if n := arrived[key]; n+f.taken+f.canceled != len(f.sent) {
			s.fail("of %d messages from rank %d to rank %d on %d with tag %d, %d were received and %d canceled; %d wait", len(f.sent),
				key[0], key[1], key[2], key[3], f.taken, f.canceled, n)
		}
	}
}

// remains checks an operation that has not ended: it waits for what no rank does.
func (s *sim) remains(i int, q *simRequest) {
	c := s.ranks[i].comms[q.ctx]
	if c == nil || s.sure || s.broke[q.ctx] && !s.unheard {
		s.fail("rank %d: operation %d has not ended; a loss: %v, broken: %v, closed: %v", i, q.post, s.sure, s.broke[q.ctx], c == nil)
	}
	if q.peer >= 0 && s.closed[q.ctx][c.World[q.peer]] {
		s.fail("rank %d: operation %d has not ended, though rank %d has closed %d", i, q.post, c.World[q.peer], q.ctx)
	}
	o := q.Impl.(*op)
	if o.state != opPosted && o.state != opRequested && o.state != opExposed {
		s.fail("rank %d: operation %d has not ended, in state %d", i, q.post, o.state)
	}
}
