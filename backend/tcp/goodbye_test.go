//go:build linux || darwin

package tcp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
)

// TestRankStoppedWithinFrameLearnsItIsLost has a rank stopped while another one sends to it, until its connection is full, and taken
// for lost: when it goes on, it finds that out, behind the frame of which it has a part.
func TestRankStoppedWithinFrameLearnsItIsLost(t *testing.T) {
	ranks := mesh(t, 2)
	stopped, other := ranks[1], ranks[0]
	stopped.e.mu.Lock()
	var sends []*backend.Request
	for full := false; !full; {
		q := &backend.Request{}
		q.Begin()
		other.Isend(q, make([]byte, eagerMax), 1, 1, backend.Standard)
		sends = append(sends, q)
		other.e.mu.Lock()
		full = other.e.links[1].begun && len(sends) > 2
		other.e.mu.Unlock()
	}
	other.Declare(1, nil)
	for _, q := range sends {
		if !q.Ready() {
			t.Error("a send to the lost rank goes on")
		}
	}
	isLost(t, "the last send", sends[len(sends)-1].Err, "rank 1 was declared lost by rank 0")
	stopped.e.unlock()
	_, err := stopped.Recv(patient, nil, 0, 2)
	isLost(t, "a receive of the lost rank", err, "rank 1 (this one) was declared lost by rank 0")
	until(t, "without the connection", other, func() bool {
		other.e.mu.Lock()
		defer other.e.mu.Unlock()
		return len(other.e.goodbyes) == 0
	})
}

// TestLossIsReportedOnNewConnection checks that a rank which is lost for another one, and connects to it, is told, whatever
// the end of their last connection was.
func TestLossIsReportedOnNewConnection(t *testing.T) {
	world := onDemand(t, 3, nil)
	hub := world[0].e
	hub.mu.Lock() // nobody hears of it by way of the hub
	world[1].Declare(2, nil)
	e := world[1].e
	e.mu.Lock()
	e.links[2].broken, e.links[2].fresh = unix.EPIPE, true
	e.mu.Unlock()
	err := world[2].Send(patient, nil, 1, 1, backend.Synchronous)
	hub.unlock()
	isLost(t, "a send of the lost rank", err, "rank 2 (this one) was declared lost by rank 1")
}
