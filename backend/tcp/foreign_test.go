//go:build linux || darwin

package tcp

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// TestMessageFromNonMemberLosesItsSender checks that a rank which sends to a communicator that it is no member of is given up, and
// that no receive there takes its message.
func TestMessageFromNonMemberLosesItsSender(t *testing.T) {
	for _, kind := range []wire.Kind{wire.Eager, wire.ReadyToSend} {
		for _, when := range []string{"a receive is posted", "no receive is posted", "the communicator is not made yet"} {
			t.Run(fmt.Sprintf("%v, %s", kind, when), func(t *testing.T) {
				world := mesh(t, 3)
				forge := func() {
					world[2].e.mu.Lock()
					world[2].e.links[0].emit(&wire.Header{Kind: kind, Context: 1, Tag: 1, Token: 1}, nil, nil)
					world[2].e.unlock()
				}
				var d []*comm
				var q *backend.Request
				switch when {
				case "a receive is posted":
					d = without(t, world, 1, 2)
					q, _ = irecv(d[0], 8, backend.AnySource, 1)
					forge()
				case "no receive is posted":
					d = without(t, world, 1, 2)
					forge()
					lostIs(t, world[0], 2)
					q, _ = irecv(d[0], 8, backend.AnySource, 1)
				default:
					forge()
					until(t, "come", world[0], func() bool {
						world[0].e.mu.Lock()
						defer world[0].e.mu.Unlock()
						return world[0].e.arrived.Len() > 0
					})
					d = without(t, world, 1, 2)
					q, _ = irecv(d[0], 8, backend.AnySource, 1)
				}
				lostIs(t, world[0], 2)
				if err := d[1].Send(patient, make([]byte, 8), 0, 1, backend.Standard); err != nil {
					t.Fatal(err)
				}
				if err := await(t, d[0], q); err != nil || q.Status.Source != 1 || q.Status.Bytes != 8 {
					t.Errorf("the receive: %+v, %v, want the message of rank 1", q.Status, err)
				}
				isLost(t, "a receive from rank 2", func() error { _, err := world[0].Recv(patient, nil, 2, 1); return err }(), "invalid frame", "not a member")
			})
		}
	}
}
