//go:build interleave && linux

package comm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/view"
)

// mail carries the messages of CreateGroup. Threads take turns, and it is touched only between their steps.
type mail struct {
	size    int
	queues  map[[2]int][]claim // by sender and receiver
	arrived []bool             // by receiver: the token of its sleep
	apart   int                // how many ranks are in a first call that the others wait for
	failing int                // this send, counted from 0, runs out of time
	late    bool               // and delivers its message all the same
	waits   []uint64           // by member: the number of the claim whose answer it waits for
	decided bool               // the leader has begun to tell the members that they agree
	ended   bool               // a rank that has claimed the id has run out of time: the others may wait for it
}

// member is a rank's communicator.
type member struct {
	*alone
	*mail
}

func (m *member) Size() int { return m.size }

func (m *member) Send(_ *backend.Bound, buf []byte, dest, _ int, _ backend.Mode) error {
	var x [1]claim
	copy(view.Bytes(x[:]), buf)
	if dest < m.rank {
		m.waits[m.rank] = x[0].number
	} else if x[0].number&1 == 1 && x[0].ok == 1 && m.apart == 0 {
		m.decided = true
		if m.waits[dest] != x[0].number {
			m.end()
		}
	}
	m.failing--
	if m.failing != -1 || m.late {
		to := [2]int{m.rank, dest}
		m.queues[to] = append(m.queues[to], x[0])
		interleave.Unpark(&m.arrived[dest])
	}
	if m.failing == -1 {
		return m.timeout()
	}
	return nil
}

func (m *member) Probe(_ *backend.Bound, source, _ int, _ bool) (backend.Status, bool, error) {
	return backend.Status{}, len(m.queues[[2]int{source, m.rank}]) > 0, nil
}

// Recv ends twice for a member that is out of time: the second time after its wait for what the leader says when it gives
// up. Of two ranks this is a timeout like others. Of three it would leave too few for the rest.
func (m *member) Recv(b *backend.Bound, buf []byte, source, _ int) (backend.Status, error) {
	for from := [2]int{source, m.rank}; ; {
		if q := m.queues[from]; len(q) > 0 {
			m.queues[from] = q[1:]
			copy(buf, view.Bytes(q[:1]))
			return backend.Status{}, nil
		}
		if m.ended {
			return backend.Status{}, errGone
		}
		if b != nil && m.size > 2 {
			return backend.Status{}, m.timeout()
		}
		if got, _ := interleave.Park(&m.arrived[m.rank], true); !got {
			if b == nil && source < m.rank {
				return backend.Status{}, errLate
			}
			return backend.Status{}, m.timeout()
		}
	}
}

// await waits until the first calls of all ranks have ended.
func (m *mail) await(rank int) {
	if m.apart--; m.apart == 0 {
		m.wake()
	}
	for m.apart > 0 {
		interleave.Park(&m.arrived[rank], false)
	}
}

func (m *mail) end() {
	m.ended = true
	m.wake()
}

func (m *mail) wake() {
	for r := range m.arrived {
		interleave.Unpark(&m.arrived[r])
	}
}

func (m *member) timeout() error {
	if m.waits[m.rank] = 0; m.decided {
		m.end()
	}
	return errLate
}

var errLate error = &backend.Fault{Sentinel: backend.ErrTimeout, Text: "the time is up"}

// Ranks call CreateGroup until they get a communicator of all. Their calls run out of time at any step, and between two calls
// they make other communicators. No rank has two communicators with one id, and none has one of a group that another member
// has not passed. If no rank runs out of time between its claim of the id and the answer, all have the same one.
func TestInterleaveCreateGroupAgain(t *testing.T) {
	for _, c := range []struct {
		name           string
		size, timeouts int
		first          [3][]int // groups of the first call; nil: that of all ranks
		naps           bool     // time is up when no rank can go on; ranks begin the second call together
		sends          int      // how many of the first sends fail, one in each exploration
	}{
		{name: "two ranks", size: 2, timeouts: 3},
		{name: "three ranks", size: 3, timeouts: 2},
		{name: "another group", size: 3, timeouts: 1, first: [3][]int{1: {2, 1, 0}}},
		{name: "another lowest rank", size: 3, naps: true, first: [3][]int{1: {1, 2}}},
		{name: "another lowest rank twice", size: 3, naps: true, first: [3][]int{1: {1, 2}, 2: {2, 1}}},
		{name: "the lowest rank leaves one out", size: 3, naps: true, first: [3][]int{{0, 1}, {0, 1}}},
		{name: "a send of two ranks fails", size: 2, timeouts: 1, sends: 10},
		{name: "a send of three ranks fails", size: 3, sends: 14},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.size == 3 && c.timeouts == 2 && testing.Short() {
				c.timeouts = 1 // make test-all explores two: 155 000 schedules
			}
			schedules := 0
			for i := range 1 + 2*c.sends {
				schedules += interleave.Explore(t, interleave.Config{Preemptions: -1, Timeouts: c.timeouts, Naps: c.naps}, func(x *interleave.Run) {
					m := &mail{size: c.size, queues: map[[2]int][]claim{}, arrived: make([]bool, c.size), waits: make([]uint64, c.size), failing: i/2 - 1 + i%2, late: i%2 == 0}
					createGroups(x, m, c.first, c.naps)
				})
			}
			t.Log(schedules, "schedules")
		})
	}
}

// createGroups starts the ranks. With together they begin the second call when all have ended the first.
func createGroups(x *interleave.Run, m *mail, first [3][]int, together bool) {
	all := []int{0, 1, 2}[:m.size]
	passed := first
	for r, g := range first {
		if g == nil {
			passed[r] = all
		}
	}
	if together {
		m.apart = m.size
	}
	made := make([]uint32, m.size)
	for rank := range m.size {
		alone := newAlone()
		alone.rank = rank
		w := world(&member{alone, m})
		x.Go(fmt.Sprint("rank ", rank), func() {
			used := map[uint32]bool{}
			use := func(id uint32) {
				if used[id] {
					x.Errorf("rank %d has two communicators with id %d", rank, id)
				}
				used[id] = true
			}
			own := func() {
				ids := &w.core.job.ids
				from := ids.Begin()
				id, err := w.core.job.agree(0, func(mine claim) (claim, error) { return mine, nil })
				ids.End(from)
				if err != nil {
					x.Errorf("%v", err)
				}
				use(id)
			}
			for members, call := passed[rank], 1; ; members, call = all, call+1 {
				d, err := w.CreateGroup(members, 0, nil)
				switch {
				case err == nil:
					use(d.core.id)
					for _, r := range members {
						if len(members) < m.size && !slices.Equal(passed[r], members) {
							x.Errorf("rank %d has a communicator of %v; rank %d passed %v", rank, members, r, passed[r])
						}
					}
				case m.ended:
					return
				case !errors.Is(err, backend.ErrTimeout) && !(first[1] != nil && errors.Is(err, backend.ErrMismatch)):
					x.Errorf("rank %d: %v", rank, err)
				}
				own()
				if err == nil && len(members) == m.size {
					made[rank] = d.core.id
					return
				}
				if together && call == 1 {
					m.await(rank)
				}
			}
		})
	}
	x.Check(func() error {
		for rank, id := range made {
			if id != made[0] && !m.ended {
				return fmt.Errorf("rank %d has a communicator with id %d, rank 0 with id %d", rank, id, made[0])
			}
		}
		return nil
	})
}
