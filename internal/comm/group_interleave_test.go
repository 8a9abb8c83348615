//go:build interleave && linux

package comm

import (
	"errors"
	"fmt"
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
	if dest == 0 {
		m.waits[m.rank] = x[0].number
	} else if x[0].number&1 == 1 && x[0].ok == 1 {
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

func (m *member) Recv(_ *backend.Bound, buf []byte, source, _ int) (backend.Status, error) {
	for from := [2]int{source, m.rank}; ; {
		if q := m.queues[from]; len(q) > 0 {
			m.queues[from] = q[1:]
			copy(buf, view.Bytes(q[:1]))
			return backend.Status{}, nil
		}
		if m.ended {
			return backend.Status{}, errGone
		}
		if got, _ := interleave.Park(&m.arrived[m.rank], true); !got {
			return backend.Status{}, m.timeout()
		}
	}
}

func (m *mail) end() {
	m.ended = true
	for r := range m.arrived {
		interleave.Unpark(&m.arrived[r])
	}
}

func (m *member) timeout() error {
	if m.waits[m.rank] = 0; m.decided {
		m.end()
	}
	return backend.Faultf(backend.ErrTimeout, "the time is up")
}

// Ranks call CreateGroup until they get a communicator. Their calls run out of time at any step, and between two calls
// they make other communicators. No rank has two communicators with one id. If no rank runs out of time between its
// claim of the id and the answer, all have the same one.
func TestInterleaveCreateGroupAgain(t *testing.T) {
	for _, c := range []struct {
		name           string
		size, timeouts int
		other          bool // rank 1 first calls it with another group
		sends          int  // how many of the first sends fail, one in each exploration
	}{
		{"two ranks", 2, 3, false, 0},
		{"three ranks", 3, 2, false, 0},
		{"another group", 3, 1, true, 0},
		{"a send of two ranks fails", 2, 1, false, 10},
		{"a send of three ranks fails", 3, 0, false, 14},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.size == 3 && c.timeouts == 2 && testing.Short() {
				c.timeouts = 1 // make test-all explores two: 155 000 schedules
			}
			schedules := 0
			for i := range 1 + 2*c.sends {
				schedules += interleave.Explore(t, interleave.Config{Preemptions: -1, Timeouts: c.timeouts}, func(x *interleave.Run) {
					m := &mail{size: c.size, queues: map[[2]int][]claim{}, arrived: make([]bool, c.size), waits: make([]uint64, c.size), failing: i/2 - 1 + i%2, late: i%2 == 0}
					createGroups(x, m, c.other)
				})
			}
			t.Log(schedules, "schedules")
		})
	}
}

// createGroups starts the ranks.
func createGroups(x *interleave.Run, m *mail, other bool) {
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
			members := []int{0, 1, 2}[:m.size]
			if other && rank == 1 {
				members = []int{2, 1, 0}
			}
			for {
				d, err := w.CreateGroup(members, 0, nil)
				switch {
				case err == nil:
					use(d.core.id)
					own()
					made[rank] = d.core.id
					return
				case m.ended:
					return
				case !errors.Is(err, backend.ErrTimeout) && !(other && errors.Is(err, backend.ErrMismatch)):
					x.Errorf("rank %d: %v", rank, err)
				}
				own()
				members = []int{0, 1, 2}[:m.size]
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
