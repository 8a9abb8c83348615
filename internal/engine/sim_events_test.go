package engine

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// What the simulation lets ranks do, and what happens to them.

// open returns a communicator of a rank that is open, nil if there is none.
func (s *sim) open(i int) (int, *comm) {
	ctx := s.rng.IntN(2)
	return ctx, s.ranks[i].comms[ctx]
}

func (s *sim) start(i, ctx int, q *simRequest) {
	r := s.ranks[i]
	if q.post == 0 {
		r.posts++
		q.post = r.posts
	}
	q.rank, q.ctx = i, ctx
	q.Begin()
	r.reqs = append(r.reqs, q)
}

const simLong = 2*moveMax + 1000 // of a message of a rank to itself

var simSizes = []int{0, 8, 100, 1 << 10, 1<<10 + 1, 5000, 20000, 40000}

const simRanks = 4 // at most

func (s *sim) send(i int) {
	ctx, c := s.open(i)
	if c == nil {
		return
	}
	s.sendTo(i, ctx, s.rng.IntN(c.Size()), simSizes[min(s.rng.IntN(2*len(simSizes)), s.rng.IntN(len(simSizes)))])
}

func (s *sim) sendTo(i, ctx, dest, size int) {
	c := s.ranks[i].comms[ctx]
	q := &simRequest{send: true, peer: dest, tag: s.rng.IntN(2), size: size}
	to := c.World[dest]
	if to == i && s.chance(8) {
		q.size = simLong
	}
	flow := s.flow([4]int{i, to, ctx, q.tag})
	flow.sent = append(flow.sent, 0)
	q.seq = len(flow.sent)
	q.buf = s.memory.buffer(q.size)
	flow.fill(q.buf, q.seq)
	mode := backend.Standard
	if s.chance(2) {
		mode = backend.Synchronous
	}
	s.start(i, ctx, q)
	s.say("rank %d sends %d bytes, tag %d, number %d, to rank %d on %d (mode %v)", i, q.size, q.tag, q.seq, to, ctx, mode)
	c.Isend(&q.Request, q.buf, dest, q.tag, mode)
	s.check(i)
}

func (s *sim) receive(i int) {
	ctx, c := s.open(i)
	if c == nil {
		return
	}
	q := &simRequest{peer: s.rng.IntN(c.Size()), tag: s.rng.IntN(2), buf: s.memory.buffer(simSizes[len(simSizes)-1])}
	if c.World[q.peer] == i && s.chance(2) {
		q.buf = s.memory.buffer(simLong)
	}
	if s.chance(4) {
		q.peer = backend.AnySource
	}
	if s.chance(4) {
		q.tag = backend.AnyTag
	}
	s.start(i, ctx, q)
	s.say("rank %d receives from %d, tag %d, on %d (operation %d)", i, q.peer, q.tag, ctx, q.post)
	c.Irecv(&q.Request, q.buf, q.peer, q.tag)
	s.check(i)
}

// probe looks for a message, and perhaps takes it, or receives one that was taken.
func (s *sim) probe(i int) {
	r := s.ranks[i]
	if len(r.held) > 0 && s.chance(2) {
		s.receiveMatched(i)
		return
	}
	ctx, c := s.open(i)
	if c == nil {
		return
	}
	source, tag := s.rng.IntN(c.Size()), s.rng.IntN(2)
	if s.chance(2) {
		source = backend.AnySource
	}
	if s.chance(2) {
		tag = backend.AnyTag
	}
	if s.chance(4) {
		c.Probe(nil, source, tag, false)
		s.check(i)
		return
	}
	m, st, found, _ := c.Mprobe(nil, source, tag, false)
	s.check(i)
	if found {
		r.posts++
		s.say("rank %d takes %+v on %d (operation %d)", i, st, ctx, r.posts)
		r.held = append(r.held, simMatched{ctx, r.posts, m, st})
	}
}

// receiveMatched receives a message that was taken.
func (s *sim) receiveMatched(i int) {
	r := s.ranks[i]
	k := s.rng.IntN(len(r.held))
	m := r.held[k]
	r.held = slices.Delete(r.held, k, k+1)
	c := r.comms[m.ctx]
	if c == nil {
		return
	}
	q := &simRequest{peer: m.status.Source, tag: m.status.Tag, size: m.status.Bytes, post: m.post, matched: true, buf: s.memory.buffer(max(m.status.Bytes, 8))}
	s.start(i, m.ctx, q)
	s.say("rank %d receives what it has taken: operation %d", i, q.post)
	c.Imrecv(&q.Request, m.matched, q.buf)
	s.check(i)
}

// some returns an operation of a rank that has not ended, rather a late one, and its communicator, nil if there is
// none.
func (s *sim) some(i int) (*simRequest, *comm) {
	r := s.ranks[i]
	if len(r.reqs) == 0 {
		return nil, nil
	}
	q := r.reqs[len(r.reqs)-1-s.rng.IntN(min(len(r.reqs), 1<<s.rng.IntN(8)))]
	if !q.Active() {
		return nil, nil
	}
	return q, r.comms[q.ctx]
}

// deadline gives an operation up, as a blocking call does whose time is over. Sends to the same rank may have the same deadline.
func (s *sim) deadline(i int) {
	q, c := s.some(i)
	if c == nil {
		return
	}
	if q.send && s.chance(2) && q.peer != c.rank && s.runs(c.World[q.peer]) { // more of them, to a rank that receives them now
		to := s.ranks[c.World[q.peer]]
		for range 3 {
			s.receive(c.World[q.peer])
			s.sendTo(i, q.ctx, q.peer, 8)
		}
		for range s.rng.IntN(100) {
			s.pass(20)
			s.happen()
			to.e.poll()
		}
		s.check(c.World[q.peer])
	}
	late := []*simRequest{q}
	if q.send {
		late = slices.DeleteFunc(slices.Clone(s.ranks[i].reqs), func(x *simRequest) bool {
			return !x.send || !x.Active() || x.ctx != q.ctx || x.peer != q.peer
		})
	}
	for _, q := range late {
		s.giveUp(i, q, c)
	}
	s.check(i)
}

func (s *sim) giveUp(i int, q *simRequest, c *comm) {
	if !q.Active() { // the communicator is broken
		return
	}
	s.say("rank %d gives its operation %d up", i, q.post)
	s.faulty, q.late = true, true
	e := c.e
	e.mu.Lock()
	s.gaveUp = s.gaveUp || q.send
	ended := e.abandon(q.Impl.(*op), &backend.Fault{Sentinel: backend.ErrTimeout, Text: "simulated"})
	s.broke[q.ctx] = s.broke[q.ctx] || c.brk.Load() != nil
	e.mu.Unlock()
	if !ended { // nobody waits for it
		s.ranks[i].reqs = slices.DeleteFunc(s.ranks[i].reqs, func(x *simRequest) bool { return x == q })
	}
}

func (s *sim) cancel(i int) {
	q, c := s.some(i)
	if c != nil {
		s.say("rank %d cancels its operation %d", i, q.post)
		q.canceled = true
		c.Cancel(&q.Request)
		s.check(i)
	}
}

func (s *sim) closeComm(i int) {
	if c := s.ranks[i].comms[1]; c != nil {
		s.say("rank %d closes 1", i)
		s.faulty, s.closed[1][i] = true, true
		s.ranks[i].comms[1] = nil
		c.Close()
		s.check(i)
	}
}

func (s *sim) fault(i int) {
	s.faulty = true
	r := s.ranks[i]
	switch s.rng.IntN(4) {
	case 0:
		s.die(i)
	case 1:
		s.say("rank %d is stopped", i)
		r.stopped = true
		for j, full := 0, s.chance(2); full && j < len(s.ranks); j++ { // its links
			for k := 0; k < 100 && s.runs(j); k++ {
				s.sendTo(j, 0, i, 8)
			}
		}
	case 2:
		if p := s.rng.IntN(len(s.ranks)); p != i && s.links[i][p] != nil {
			s.say("the link between ranks %d and %d ends", i, p)
			s.loss = true
			s.cuts = append(s.cuts, [2]int{i, p})
			s.links[i][p].cut(s.chance(2))
		}
	case 3:
		if ctx, c := s.open(i); c != nil {
			s.say("rank %d breaks %d", i, ctx)
			s.broke[ctx] = true
			c.Break(&backend.Fault{Sentinel: backend.ErrMismatch, Text: "simulated"})
		}
	}
	s.check(i)
}

// runs reports whether a rank takes part.
func (s *sim) runs(i int) bool {
	r := s.ranks[i]
	return !r.dead && !r.stopped && r.leaving == nil
}

// die ends a rank and its links.
func (s *sim) die(i int) {
	s.say("rank %d dies", i)
	s.sure = s.sure || s.ranks[i].leaving == nil
	s.ranks[i].dead, s.faulty, s.loss = true, true, true
	for _, l := range s.ends[i] {
		l.cut(s.chance(2))
	}
}
