//go:build cgo && linux

package mpi

import (
	"cmp"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// At thread level serialized a call of the library that waits for other ranks excludes all other calls of its process.
// Two goroutines of each rank make such calls in any order. If rank 0 made the first call and rank 1 the second, both
// would wait forever. So a rank makes such a call only once every member is about to make the same one, and makes no
// other until then: it has its turn.
//
//  1. The members take their turns in the order of their world ranks, so that no two calls wait for each other: each
//     tells the next that it has its turn.
//  2. The last member tells the others that all have it. Each makes the call, and gives its turn back.
//
// A member that has told the next one goes on after its communicator has been closed: the others rely on it.

// together makes a call that waits for the members. Their messages have the tag.
func (c *comm) together(members []int, tag int, call func() error) error {
	p := c.p
	if !p.polled {
		return call()
	}
	order := slices.SortedFunc(slices.Values(members), func(a, b int) int { return cmp.Compare(c.world[a], c.world[b]) })
	me, last := slices.Index(order, c.rank), len(order)-1
	if me > 0 {
		if err := c.hearTurn(order, me-1, tag, false); err != nil {
			return err
		}
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	if me < last {
		c.tellTurn(order[me+1], tag)
		if err := c.hearTurn(order, last, tag, true); err != nil {
			return err
		}
	} else {
		for _, r := range order[:last] {
			c.tellTurn(r, tag)
		}
	}
	return call()
}

// all returns the ranks of the communicator.
func (c *comm) all() []int {
	all := make([]int, c.size)
	for r := range all {
		all[r] = r
	}
	return all
}

func (c *comm) tellTurn(rank, tag int) {
	if c.p.engine.tell(c, nil, rank, tag) {
		c.gate.Count(1)
	}
}

// hearTurn waits for the message of one of the members.
func (c *comm) hearTurn(members []int, from, tag int, relied bool) error {
	for w := newWait(nil); ; {
		var st libmpi.Status
		if c.ctl.Probe(members[from], tag, false, &st) == 0 && st.Flag != 0 {
			code := c.ctl.Recv(nil, members[from], tag, &st)
			c.gate.Count(-1)
			return c.fault(code)
		}
		if err := c.usable(); err != nil && (!relied || err != errClosed) {
			return err
		}
		for _, r := range members {
			if c.p.hasLeft(c.world[r]) {
				return backend.PeerLeft("rank %d has closed its communicator and left the job", r)
			}
		}
		c.p.engine.poll(1)
		c.p.hear()
		_ = w.pause(c)
	}
}

// hasLeft reports whether a rank has left the job, and all that it had sent before has arrived.
func (p *process) hasLeft(world int) bool {
	p.departed.Lock()
	defer p.departed.Unlock()
	at, ok := p.departed.at[world]
	return ok && time.Since(at) > arrives
}
