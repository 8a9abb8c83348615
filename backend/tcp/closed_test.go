//go:build linux || darwin

package tcp

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// TestClosedIsNotLostWithHub has a rank close a communicator, and the hub end with the notice of it: a member
// with which there is a connection by then hears of it too.
func TestClosedIsNotLostWithHub(t *testing.T) {
	world := onDemand(t, 4, nil)
	d := without(t, world, 1, 0) // the end of the hub leaves it as it is
	hub := world[0].e
	hub.mu.Lock() // it passes nothing on any more
	d[0].Close()
	pass(t, world[1], world[3])
	for _, l := range hub.links {
		if l != nil {
			l.cut()
		}
	}
	hub.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "killed"})
	hub.isClosed = true
	hub.unlock()
	hub.demand.end()
	_, err := d[2].Recv(patient, nil, 0, 1)
	isLost(t, "a receive from who has closed the communicator", err, "rank 0 has closed this communicator")
}
