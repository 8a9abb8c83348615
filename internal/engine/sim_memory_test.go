package engine

import (
	"errors"
	"os"
	"testing"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// simMemory is the memory of a simulation: what the ranks of a node share, and the operations' buffers. The next
// simulation uses it again.
type simMemory struct {
	segment *shmem.Segment // nil: the platform has none
	all     []byte         // of segment
	buffers []byte
	used    int // of buffers
}

const simData = 4 << 10 // bytes of a data ring

func newSimMemory(t *testing.T) *simMemory {
	m := &simMemory{buffers: make([]byte, 16<<20)}
	size := simRanks * simRanks * memlink.Size(simData)
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
	clear(m.all)
	m.used = 0
}

// buffer returns n zero bytes.
func (m *simMemory) buffer(n int) []byte {
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
	end := func(own, peer int) *simMemoryLink {
		return &simMemoryLink{Link: memlink.New(memlink.Config{
			Segment: m.segment, Out: (own*simRanks + peer) * size, In: (peer*simRanks + own) * size, Data: simData,
			PID: os.Getpid(), Copies: copies, Kill: func() { s.die(peer) },
		})}
	}
	x, y := end(a, b), end(b, a)
	x.other, y.other = y, x
	return x, y
}

// simMemoryLink is one end of a link through memory.
type simMemoryLink struct {
	*memlink.Link
	other *simMemoryLink
}

func (l *simMemoryLink) inFlight() bool {
	_, _, _, ok := l.Peek(&frame.Arrival{})
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
