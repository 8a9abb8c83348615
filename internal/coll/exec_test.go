package coll

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// machine runs the schedules of all ranks in memory. It is as strict as a
// transport can be: a send completes only together with its receive, lengths
// must be equal, memory must have been written before it is read, and what one
// round moves at the same time must not overlap.
type machine struct {
	op    *backend.Op
	ranks []*executor
	wires map[[2]int]*wire // by source and destination

	// sent and recvd count bytes by rank.
	sent, recvd []int
	messages    []int // sent, by rank
	traffic     map[[2]int]traffic
	steps       int  // of the whole, see executor.clock
	self        bool // ranks may send themselves messages
}

// traffic is what one rank has sent to another.
type traffic struct{ messages, bytes int }

// across adds up what went between ranks on different nodes.
func (m *machine) across(of func(rank int) int) (sum traffic) {
	for way, t := range m.traffic {
		if of(way[0]) != of(way[1]) {
			sum.messages += t.messages
			sum.bytes += t.bytes
		}
	}
	return sum
}

// wire is what is posted between two ranks and has not matched. One of the
// lists is empty.
type wire struct {
	sends []posted
	recvs []posted
}

type posted struct {
	region  Region
	arrives int // of a send, by the sender's clock
}

// executor is one rank. Its clock counts steps as if it could send one message
// and receive one at a time, each taking one step.
type executor struct {
	sched   *Schedule
	mem     [3][]byte
	written [3][]byte // 1 where mem has been written
	round   int
	open    int // messages of the round that have not matched
	clock   int
	sends   int   // of the round
	arrived []int // of the round
	started bool
}

func newMachine(op *backend.Op, scheds []*Schedule, calls []*backend.Call) *machine {
	n := len(scheds)
	m := &machine{op: op, wires: map[[2]int]*wire{}, sent: make([]int, n), recvd: make([]int, n), messages: make([]int, n),
		traffic: map[[2]int]traffic{}, self: calls[0].Coll.Neighbor()}
	for r, s := range scheds {
		e := &executor{sched: s}
		e.mem = [3][]byte{calls[r].Send, calls[r].Recv, bytes.Repeat([]byte{0xEE}, s.Scratch)}
		for i := range e.mem {
			e.written[i] = make([]byte, len(e.mem[i]))
		}
		fill(e.written[Send])
		if calls[r].InPlace || calls[r].Coll == backend.Bcast && calls[r].Root == r {
			fill(e.written[Recv])
		}
		m.ranks = append(m.ranks, e)
	}
	return m
}

func fill(b []byte) {
	for i := range b {
		b[i] = 1
	}
}

// run runs all schedules to their ends, visiting the ranks in the given order
// again and again.
func (m *machine) run(order []int) error {
	for {
		moved, done := false, 0
		for _, r := range order {
			e := m.ranks[r]
			if !e.started && e.round < len(e.sched.Rounds) {
				if err := m.start(r); err != nil {
					return fmt.Errorf("rank %d, round %d: %w", r, e.round+1, err)
				}
				moved = true
			}
			if e.started && e.open == 0 {
				if err := m.finish(e); err != nil {
					return fmt.Errorf("rank %d, round %d: %w", r, e.round+1, err)
				}
				e.round++
				moved = true
			}
			if e.round == len(e.sched.Rounds) {
				done++
			}
		}
		switch {
		case done == len(m.ranks):
			for k, w := range m.wires {
				if len(w.sends)+len(w.recvs) > 0 {
					return fmt.Errorf("from rank %d to rank %d: %d sends and %d receives without a match", k[0], k[1], len(w.sends), len(w.recvs))
				}
			}
			for _, e := range m.ranks {
				m.steps = max(m.steps, e.clock)
			}
			return nil
		case !moved:
			return fmt.Errorf("deadlock: rounds %v", m.where())
		}
	}
}

func (m *machine) where() (rounds []int) {
	for _, e := range m.ranks {
		rounds = append(rounds, e.round+1)
	}
	return rounds
}

// start posts the messages of rank's next round.
func (m *machine) start(rank int) error {
	e := m.ranks[rank]
	e.started, e.sends, e.arrived = true, 0, e.arrived[:0]
	round := e.sched.Rounds[e.round]
	for i, a := range round.Comm {
		if a.Peer < 0 || a.Peer >= len(m.ranks) || a.Peer == rank && !m.self {
			return fmt.Errorf("%v: no such peer", a)
		}
		switch a.Kind {
		case SendTo:
			if err := e.readable(a.A); err != nil {
				return fmt.Errorf("%v: %w", a, err)
			}
		case RecvFrom:
			if err := e.writable(a.Dst); err != nil {
				return fmt.Errorf("%v: %w", a, err)
			}
			for j, o := range round.Comm {
				if j != i && (overlap(a.Dst, o.Dst) && o.Kind == RecvFrom || overlap(a.Dst, o.A) && o.Kind == SendTo) {
					return fmt.Errorf("%v while %v", a, o)
				}
			}
		default:
			return fmt.Errorf("%v among the messages", a)
		}
	}
	e.open = len(round.Comm)
	for _, a := range round.Comm {
		if a.Kind == SendTo {
			w := m.wire(rank, a.Peer)
			w.sends = append(w.sends, posted{a.A, e.clock + e.sends + 1})
			e.sends++
			m.sent[rank] += a.A.N
			m.messages[rank]++
			t := m.traffic[[2]int{rank, a.Peer}]
			m.traffic[[2]int{rank, a.Peer}] = traffic{t.messages + 1, t.bytes + a.A.N}
			m.recvd[a.Peer] += a.A.N
			if err := m.match(w, rank, a.Peer); err != nil {
				return err
			}
			continue
		}
		w := m.wire(a.Peer, rank)
		w.recvs = append(w.recvs, posted{region: a.Dst})
		if err := m.match(w, a.Peer, rank); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) wire(src, dst int) *wire {
	k := [2]int{src, dst}
	w := m.wires[k]
	if w == nil {
		w = &wire{}
		m.wires[k] = w
	}
	return w
}

// match moves what can be moved from src to dst.
func (m *machine) match(w *wire, src, dst int) error {
	for len(w.sends) > 0 && len(w.recvs) > 0 {
		s, r := w.sends[0], w.recvs[0]
		w.sends, w.recvs = w.sends[1:], w.recvs[1:]
		if s.region.N != r.region.N {
			return fmt.Errorf("rank %d sends %v, rank %d receives %v", src, s.region, dst, r.region)
		}
		from, to := m.ranks[src], m.ranks[dst]
		copy(to.bytes(r.region), from.bytes(s.region))
		to.wrote(r.region)
		from.open--
		to.open--
		to.arrived = append(to.arrived, s.arrives)
	}
	return nil
}

// finish does the local work of a round whose messages are complete.
func (m *machine) finish(e *executor) error {
	e.started = false
	slices.Sort(e.arrived)
	t := e.clock
	for _, a := range e.arrived {
		t = max(t, a-1) + 1
	}
	e.clock = max(t, e.clock+e.sends)
	for _, a := range e.sched.Rounds[e.round].Local {
		if err := e.local(m.op, a); err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
	}
	return nil
}

func (e *executor) local(op *backend.Op, a Action) error {
	if err := e.readable(a.A); err != nil {
		return err
	}
	if err := e.writable(a.Dst); err != nil {
		return err
	}
	if a.A.N != a.Dst.N || a.A.N == 0 {
		return fmt.Errorf("lengths differ or are zero")
	}
	if overlap(a.A, a.Dst) && a.A != a.Dst {
		return fmt.Errorf("operands overlap")
	}
	switch a.Kind {
	case Copy:
		copy(e.bytes(a.Dst), e.bytes(a.A))
	case Reduction:
		if err := e.readable(a.B); err != nil {
			return err
		}
		if a.B.N != a.Dst.N || overlap(a.B, a.Dst) && a.B != a.Dst || overlap(a.A, a.B) {
			return fmt.Errorf("operands overlap or have different lengths")
		}
		if (a.A.Off|a.B.Off|a.Dst.Off|a.Dst.N)%op.Type.Size != 0 {
			return fmt.Errorf("operands are not whole elements")
		}
		op.Apply(e.bytes(a.Dst), e.bytes(a.A), e.bytes(a.B))
	default:
		return fmt.Errorf("a message in the local work")
	}
	e.wrote(a.Dst)
	return nil
}

func (e *executor) bytes(r Region) []byte {
	if r.N == 0 {
		return nil
	}
	return e.mem[r.Space][r.Off : r.Off+r.N]
}

func (e *executor) inside(r Region) error {
	if r.N < 0 || r.N > 0 && (r.Off < 0 || r.Off+r.N > len(e.mem[r.Space])) {
		return fmt.Errorf("%v is outside the %d bytes", r, len(e.mem[r.Space]))
	}
	return nil
}

func (e *executor) readable(r Region) error {
	if err := e.inside(r); err != nil || r.N == 0 {
		return err
	}
	if i := bytes.IndexByte(e.written[r.Space][r.Off:r.Off+r.N], 0); i >= 0 {
		return fmt.Errorf("%v: byte %d was never written", r, r.Off+i)
	}
	return nil
}

func (e *executor) writable(r Region) error {
	if r.Space == Send && r.N > 0 {
		return fmt.Errorf("the send buffer is read only")
	}
	return e.inside(r)
}

func (e *executor) wrote(r Region) {
	if r.N > 0 {
		fill(e.written[r.Space][r.Off : r.Off+r.N])
	}
}

func overlap(a, b Region) bool {
	return a.Space == b.Space && a.N > 0 && b.N > 0 && a.Off < b.Off+b.N && b.Off < a.Off+a.N
}
