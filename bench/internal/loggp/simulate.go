package loggp

import (
	"fmt"
	"math"
)

// Time returns how many seconds a machine takes for a program that begins on all ranks at once, until the
// last rank has ended. Run several times, each rank begins the next run when it has ended the one before.
func (p *Program) Time(m *Machine, runs int) (float64, error) {
	s := &simulation{p: p, m: m, runs: runs, ranks: make([]state, len(p.ranks))}
	nodes := (len(p.ranks) + m.Ranks - 1) / m.Ranks
	s.out, s.in = make([]float64, nodes), make([]float64, nodes)
	if m.Cores > 0 {
		s.cores = make([]float64, nodes*m.Cores)
	}
	running := 0
	for r := range p.ranks {
		if len(p.ranks[r].rounds) > 0 {
			s.push(event{rank: int32(r), kind: begin})
			running++
		}
	}
	for len(s.queue) > 0 {
		e := s.pop()
		switch e.kind {
		case begin:
			s.begin(e)
		case inject:
			s.inject(e)
		case head:
			s.head(e)
		case body:
			s.body(e)
		case local:
			running -= s.local(e)
		}
	}
	if running > 0 {
		return 0, fmt.Errorf("%d of %d ranks wait for messages that nobody sends", running, len(p.ranks))
	}
	return s.end, nil
}

// simulation is the state of one Time. Events are handled in order of time.
type simulation struct {
	p       *Program
	m       *Machine
	runs    int
	ranks   []state
	out, in []float64 // when the nodes' ports are free
	cores   []float64 // when the nodes' cores are free; nil: one for each rank
	queue   []event   // a heap
	serial  int64
	end     float64
}

// state is that of a rank.
type state struct {
	run, round int
	cpu        float64 // when its processor is free
	out, in    float64 // when its ports inside its node are free
	open       int     // messages of the round that are not complete
	done       float64 // when the last of the others was
	posted     map[int32]int
	early      map[int32][]event // bodies that came before their receives
}

type kind int8

const (
	begin  kind = iota // a rank begins a round
	inject             // a message enters the sender's port
	head               // its first byte arrives at the receiver's port
	body               // and leaves it
	local              // all messages of a rank's round are complete
)

type event struct {
	at     float64
	serial int64 // of equal times the first one pushed is handled first
	kind   kind
	rank   int32 // of inject the sender, else where it happens
	op     op
	tail   float64 // when the last byte can arrive at the earliest
}

// begin starts all messages of a round.
func (s *simulation) begin(e event) {
	r, st := e.rank, &s.ranks[e.rank]
	t := &s.p.ranks[r]
	x, first := t.rounds[st.round], int32(0)
	if st.round > 0 {
		first = t.rounds[st.round-1].recvs
	}
	sends, recvs := t.ops[first:x.sends], t.ops[x.sends:x.recvs]
	busy := s.m.Round
	for _, o := range sends {
		l := s.m.link(o)
		busy += l.O + float64(o.bytes)*l.PerByte
	}
	at := s.claim(r, e.at, busy) - busy + s.m.Round
	for _, o := range sends {
		l := s.m.link(o)
		copied := at + l.O + float64(o.bytes)*l.PerByte
		s.push(event{at: at + l.O, kind: inject, rank: r, op: o, tail: copied + l.L})
		at = copied
	}
	st.open, st.done = len(sends)+len(recvs), at
	var here []event
	for _, o := range recvs {
		if q := st.early[o.on]; len(q) > 0 {
			here = append(here, q[0])
			if st.early[o.on] = q[1:]; len(q) == 1 {
				delete(st.early, o.on)
			}
			continue
		}
		if st.posted == nil {
			st.posted = map[int32]int{}
		}
		st.posted[o.on]++
	}
	for _, b := range here {
		b.at = max(b.at, e.at)
		s.receive(b)
	}
	if len(sends)+len(recvs) == 0 {
		s.push(event{at: st.done, kind: local, rank: r})
	}
}

// inject sends a message's bytes through the sender's port.
func (s *simulation) inject(e event) {
	st, l := &s.ranks[e.rank], s.m.link(e.op)
	port := &st.out
	if e.op.far {
		port = &s.out[int(e.rank)/s.m.Ranks]
	}
	start, bytes := max(e.at, *port), float64(e.op.bytes)*l.PerGap
	*port = start + max(l.Gap, bytes)
	s.push(event{at: start + l.L, kind: head, rank: e.op.to, op: e.op, tail: e.tail})
	s.complete(e.rank, start+bytes)
}

// head brings a message's first byte to the receiver's port, where it waits for messages that came before.
func (s *simulation) head(e event) {
	l := s.m.link(e.op)
	port := &s.ranks[e.rank].in
	if e.op.far {
		port = &s.in[int(e.rank)/s.m.Ranks]
	}
	e.at = max(e.at, *port)
	bytes := float64(e.op.bytes) * l.PerGap
	*port = e.at + max(l.Gap, bytes)
	e.kind, e.tail = body, max(e.tail, e.at+bytes)
	s.push(e)
}

// body hands a message to its receive, if there is one.
func (s *simulation) body(e event) {
	st := &s.ranks[e.rank]
	if n := st.posted[e.op.on]; n > 0 {
		if st.posted[e.op.on] = n - 1; n == 1 {
			delete(st.posted, e.op.on)
		}
		s.receive(e)
		return
	}
	if st.early == nil {
		st.early = map[int32][]event{}
	}
	st.early[e.op.on] = append(st.early[e.op.on], e)
}

// receive has the rank's processor take a message.
func (s *simulation) receive(e event) {
	l := s.m.link(e.op)
	s.complete(e.rank, max(s.claim(e.rank, e.at, l.O+float64(e.op.bytes)*l.PerByte), e.tail+l.O))
}

// complete ends a message of a rank's round.
func (s *simulation) complete(rank int32, at float64) {
	st := &s.ranks[rank]
	st.done = max(st.done, at)
	if st.open--; st.open == 0 {
		s.push(event{at: st.done, kind: local, rank: rank})
	}
}

// local does a round's local work, after which the next round begins. It returns 1 if there is none.
func (s *simulation) local(e event) int {
	st := &s.ranks[e.rank]
	rounds := s.p.ranks[e.rank].rounds
	x := rounds[st.round]
	at := s.claim(e.rank, e.at, float64(x.copies)*s.m.Copy+float64(x.reduces)*s.m.Reduce)
	s.end = max(s.end, at)
	if st.round++; st.round == len(rounds) {
		st.round = 0
		if st.run++; st.run == s.runs {
			return 1
		}
	}
	s.push(event{at: at, kind: begin, rank: e.rank})
	return 0
}

// claim gives a rank a processor for some time, from a given one on, and returns when that ends.
func (s *simulation) claim(rank int32, at, busy float64) float64 {
	st := &s.ranks[rank]
	at = max(at, st.cpu)
	if s.cores != nil && busy > 0 {
		node := int(rank) / s.m.Ranks
		first, least := 0, math.Inf(1)
		for i := node * s.m.Cores; i < (node+1)*s.m.Cores; i++ {
			if s.cores[i] < least {
				first, least = i, s.cores[i]
			}
		}
		at = max(at, least)
		s.cores[first] = at + busy
	}
	st.cpu = at + busy
	return st.cpu
}

// link returns what a message goes over.
func (m *Machine) link(o op) *Link {
	if o.far {
		return &m.Across
	}
	return &m.Inside
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.serial < b.serial }

func (s *simulation) push(e event) {
	s.serial++
	e.serial = s.serial
	q := append(s.queue, e)
	i := len(q) - 1
	for i > 0 && e.before(&q[(i-1)/2]) {
		q[i] = q[(i-1)/2]
		i = (i - 1) / 2
	}
	q[i] = e
	s.queue = q
}

func (s *simulation) pop() event {
	q := s.queue
	top, e := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	i := 0
	for 2*i+1 < len(q) {
		c := 2*i + 1
		if c+1 < len(q) && q[c+1].before(&q[c]) {
			c++
		}
		if !q[c].before(&e) {
			break
		}
		q[i] = q[c]
		i = c
	}
	if len(q) > 0 {
		q[i] = e
	}
	s.queue = q
	return top
}
