package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/sched"
)

// breakFor breaks a communicator, and sends a notice to those ranks alone: the others' notices are late.
func breakFor(c *comm, f *backend.Fault, ranks ...int) {
	c.e.mu.Lock()
	c.markBroken(f)
	c.broadcast(frame.Broken, f.Encode(noticeMax), func(p *peer) bool { return slices.Contains(ranks, p.rank) })
	c.e.mu.Unlock()
}

// isBroken checks for an error which says that a communicator was broken before the call.
func isBroken(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, backend.ErrBroken) || errors.Is(err, backend.ErrMismatch) {
		t.Errorf("%s: %v, want ErrBroken, and no mismatch", what, err)
	}
}

// Ranks 0 to 2 are in a broadcast, and rank 3 does not call it. Rank 1 gives up. Its notice reaches rank 0,
// which sends rank 3 a message that arrives before rank 1's notice. The others' messages of the broadcast
// have arrived too. Rank 3 must find that the communicator is broken, not that its next call does not match
// theirs.
func TestMessageDoesNotOvertakeBreak(t *testing.T) {
	for _, c := range []struct {
		what string
		late bool // rank 0 makes the communicator after the notice has arrived
	}{{"the communicator is made first", false}, {"the notice comes before the communicator", true}} {
		t.Run(c.what, func(t *testing.T) {
			const id = 1
			world := mesh(t, 4)
			members := []int{0, 1, 2, 3}
			d := make([]*comm, 4)
			makeAt := func(r int) {
				made, err := world[r].Derive(nil, members, id)
				if err != nil {
					t.Fatal(err)
				}
				d[r] = made.(*comm)
			}
			for r := range d {
				if r > 0 || !c.late {
					makeAt(r)
				}
			}
			buf := make([]byte, 4*8)
			for r := range d[:3] {
				if d[r] == nil {
					continue
				}
				call := &backend.Call{Coll: backend.Bcast, Form: backend.Nonblocking, Root: 0, Type: float64s, Count: 1, Recv: buf[8*r:][:8]}
				if _, err := sched.New(d[r]).Start(call); err != nil {
					t.Fatal(err)
				}
			}
			if !c.late { // with that of rank 0, these messages would show a mismatch
				for _, source := range []int{1, 2} {
					want := match.Env{Ctx: id, Source: int32(source), Tag: int32(backend.CheckTag(0))}
					until(t, "come", d[3], func() bool {
						d[1].Poll()
						d[2].Poll()
						return locked(d[3], func(e *Engine) bool { return e.arrived.FindArrived(want) != nil })
					})
				}
			}

			breakFor(d[1], &backend.Fault{Sentinel: backend.ErrTimeout, Text: "rank 3 has not come"}, 0)
			if c.late {
				until(t, "aware of the break", world[0], func() bool {
					return locked(world[0], func(e *Engine) bool { return e.early[id] != nil })
				})
				makeAt(0)
			}
			until(t, "broken", d[0], func() bool { return d[0].Broken() != nil })
			pass(t, world[0], world[3])

			call := &backend.Call{Coll: backend.Barrier, Root: -1}
			isBroken(t, "a barrier of rank 3", sched.New(d[3]).Run(patient, call, true))
		})
	}
}

// A notice through the hub may arrive later than the first message on a new link, whichever end asked for
// the link.
func TestMessageOnNewLinkDoesNotOvertakeBreak(t *testing.T) {
	for _, c := range []struct {
		what  string
		first [2]int // who sends to whom first
	}{{"the rank that has broken it", [2]int{1, 3}}, {"the other", [2]int{3, 1}}} {
		t.Run(c.what, func(t *testing.T) {
			world := onDemand(t, 4, 0)
			d := derive(t, world, 1, 0, 1, 2, 3)
			other := derive(t, world, 2, 0, 1)
			breakFor(d[1], &backend.Fault{Sentinel: backend.ErrTimeout, Text: "because of the test"})
			breakFor(other[1], &backend.Fault{Sentinel: backend.ErrTimeout, Text: "because of the test"})
			pass(t, world[c.first[0]], world[c.first[1]])
			if c.first[0] == 3 {
				pass(t, world[1], world[3])
			}
			isBroken(t, "a send of rank 3", d[3].Send(patient, nil, 2, 1, backend.Standard))
			world[3].e.mu.Lock()
			if n := len(world[3].e.early); n != 0 {
				t.Errorf("rank 3 keeps notices of %d communicators that it is not in", n)
			}
			world[3].e.mu.Unlock()
		})
	}
}

// A rank closes a communicator, and the hub ends before it has forwarded the notice. A member that has a
// link with the rank by then gets the notice too.
func TestNoticeOfClosingIsNotLostWithHub(t *testing.T) {
	world := onDemand(t, 4, 0)
	d := without(t, world, 1, 0) // the end of the hub does not end it
	world[0].e.mu.Lock()         // it forwards nothing any more
	d[0].Close()
	pass(t, world[1], world[3])
	killLocked(world[0])
	_, err := d[2].Recv(patient, nil, 0, 1)
	isLost(t, "a receive from a rank that has closed the communicator", err, "rank 0 has closed this communicator")
}
