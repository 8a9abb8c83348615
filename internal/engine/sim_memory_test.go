package engine

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// simMemory is the memory of a simulation: what the ranks of a node share, and the operations' buffers. The next
// simulation uses it again.
type simMemory struct {
	segment *shmem.Segment // nil: the platform has none
	all     []byte         // of segment
	buffers []byte
	used    int    // of buffers
	secret  []byte // which the kernel does not copy; nil: it has no such memory
	asked   int    // buffers that there were
	links   int    // that there were
}

const (
	simData  = 4 << 10 // bytes of a data ring
	simLinks = 40      // of one simulation, at most
)

func newSimMemory(t *testing.T) *simMemory {
	m := &simMemory{buffers: make([]byte, 16<<20)}
	size := 2 * simLinks * memlink.Size(simData)
	if secret, err := need.SecretMemory(1 << 20); err == nil {
		m.secret = secret
	}
	var err error
	if m.segment, err = shmem.Create("sim", size); err != nil {
		t.Logf("no links through memory: %v", err)
		return m
	}
	t.Cleanup(func() { m.segment.Close() })
	m.all = shmem.Slice[byte](m.segment, 0, size)
	return m
}

// reset prepares the next simulation.
func (m *simMemory) reset() {
	clear(m.all[:2*m.links*memlink.Size(simData)])
	m.used, m.links, m.asked = 0, 0, 0
}

// room reports whether there is memory for another link.
func (m *simMemory) room() bool { return m.segment != nil && m.links < simLinks }

// buffer returns n zero bytes.
func (m *simMemory) buffer(n int) []byte {
	const slot = 40 << 10
	if m.asked++; m.asked%4 == 0 && n <= slot && m.asked/4*slot <= len(m.secret) {
		b := m.secret[m.asked/4*slot-slot:][:n:n]
		clear(b)
		return b
	}
	if m.used+n > len(m.buffers) {
		return make([]byte, n)
	}
	b := m.buffers[m.used : m.used+n : m.used+n]
	clear(b)
	m.used += n
	return b
}

// link joins two ranks of a node. All ranks are this process, which copies from itself to itself.
func (m *simMemory) link(s *sim, a, b int, copies bool) (simEnd, simEnd) {
	size := memlink.Size(simData)
	out := 2 * m.links * size
	m.links++
	var mailboxes [2]memlink.Mailbox
	var make func() error
	if !s.onDemand {
		make = func() error { return nil }
	}
	end := func(out, in, own, peer int, says, hears *memlink.Mailbox) *simMemoryLink {
		return &simMemoryLink{s: s, own: own, Link: memlink.New(memlink.Config{
			Segment: m.segment, Out: out, In: in, Data: simData, Says: says, Hears: hears, Make: make,
			Peer: shmem.Self().Process(), Copies: copies, Kill: func() { s.die(peer) },
			Asleep: &s.sleepers[peer].bell, Bell: s.sleepers[peer].Ring,
		})}
	}
	x, y := end(out, out+size, a, b, &mailboxes[0], &mailboxes[1]), end(out+size, out, b, a, &mailboxes[1], &mailboxes[0])
	x.other, y.other = y, x
	x.socket = s.onDemand || s.chance(2)
	y.socket = x.socket
	return x, y
}

// simMemoryLink is one end of a link through memory.
type simMemoryLink struct {
	*memlink.Link
	s      *sim
	own    int // rank
	other  *simMemoryLink
	socket bool // beside it, which shows that the other end is closed
}

// Ended wakes the rank, as a backend does.
func (l *simMemoryLink) Ended(err error) {
	l.Link.Ended(err)
	l.s.sleepers[l.own].Ring()
}

func (l *simMemoryLink) Finish(goodbye bool) {
	l.Link.Finish(goodbye)
	if l.socket {
		l.other.Ended(nil)
	}
}

func (l *simMemoryLink) Close() {
	l.Link.Close()
	if l.socket {
		l.other.Ended(nil)
	}
}

func (l *simMemoryLink) inFlight() bool {
	_, _, _, _, ok := l.Peek(&frame.Arrival{})
	return ok
}

func (l *simMemoryLink) cut(lost bool) {
	for _, end := range []*simMemoryLink{l, l.other} {
		if lost {
			end.Ended(errors.New("simulated: connection reset"))
		} else {
			end.Ended(nil)
		}
	}
}
