//go:build linux || darwin

package tcp

import (
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// breakFor breaks a communicator, and tells those ranks alone: what the others are to hear is on its
// way.
func breakFor(c *comm, f *backend.Fault, ranks ...int) {
	c.e.mu.Lock()
	c.broken(f)
	for _, r := range ranks {
		c.sendNotice(r, wire.Broken, encodeFault(f))
	}
	c.e.unlock()
}

// until polls until it is so.
func until(t *testing.T, what string, c *comm, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); c.Poll() {
		if time.Now().After(end) {
			t.Fatalf("rank %d: not %s after a minute", c.e.me, what)
		}
	}
}

// isBroken checks an error that is to say that a communicator was broken before the call.
func isBroken(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, backend.ErrBroken) || errors.Is(err, backend.ErrMismatch) {
		t.Errorf("%s: %v, want ErrBroken, and no mismatch", what, err)
	}
}

// pass sends an empty message from one rank to another.
func pass(t *testing.T, from, to *comm) {
	t.Helper()
	if err := from.Send(patient, nil, to.rank, 1, backend.Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Recv(patient, nil, from.rank, 1); err != nil {
		t.Fatal(err)
	}
}

// Ranks 0 to 2 are in a broadcast, and rank 3 does not come. Rank 1 gives up; its notice reaches rank 0,
// which tells rank 3 to go on, and rank 3 hears that before rank 1's notice. What the others have sent in
// their broadcast is there: rank 3 is to hear that the communicator is broken, not that its next call
// is another one than theirs.
func TestBreakIsNotOvertaken(t *testing.T) {
	for _, c := range []struct {
		what string
		late bool // rank 0 makes the communicator when the notice is there
	}{{"the communicator is there", false}, {"the notice comes before the communicator", true}} {
		t.Run(c.what, func(t *testing.T) {
			const id = 1
			world := mesh(t, 4)
			members := []int{0, 1, 2, 3}
			d := make([]*comm, 4)
			makeAt := func(r int) {
				made, err := world[r].Derive(members, id)
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
			if !c.late { // with the broadcast of rank 0 all is there that a mismatch takes
				for _, source := range []int{1, 2} {
					want := match.Env{Ctx: id, Source: int32(source), Tag: int32(backend.CheckTag(0))}
					until(t, "come", d[3], func() bool {
						d[1].Poll()
						d[2].Poll()
						d[3].e.mu.Lock()
						defer d[3].e.mu.Unlock()
						return d[3].e.arrived.FindArrived(want) != nil
					})
				}
			}

			breakFor(d[1], &backend.Fault{Sentinel: backend.ErrTimeout, Text: "rank 3 has not come"}, 0)
			if c.late {
				until(t, "told", world[0], func() bool {
					world[0].e.mu.Lock()
					defer world[0].e.mu.Unlock()
					return world[0].e.early[id] != nil
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

// Where connections are made when first needed, what goes by way of the hub may be behind the first
// message on a new connection, whichever end asked for that.
func TestBreakIsNotOvertakenOnNewConnection(t *testing.T) {
	for _, c := range []struct {
		what  string
		first [2]int // who sends to whom first
	}{{"the rank that knows of it", [2]int{1, 3}}, {"the other", [2]int{3, 1}}} {
		t.Run(c.what, func(t *testing.T) {
			world := onDemand(t, 4, nil)
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
