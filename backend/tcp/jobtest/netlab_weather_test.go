//go:build linux

package jobtest

import (
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// TestBadNetworkCausesNoError runs a part of the conformance suite on 4 hosts between which packets are late and lost.
// TCP repairs that, and no rank may get an error. Deadlines and heartbeats are the default ones. With -short all of it
// happens at once.
func TestBadNetworkCausesNoError(t *testing.T) {
	if !needHosts(t) {
		return
	}
	few := []string{"p2p/order", "p2p/large", "requests/sets", "sequence/back-to-back", "communicators/split"}
	more := append([]string{"Allreduce", "sequence/goroutines"}, few...)
	for _, c := range []struct {
		what  string
		path  netlab.Path
		parts []string
		did   func(netlab.Count) int // how often it happened
	}{
		{"delay", netlab.Path{Delay: time.Millisecond}, more, func(c netlab.Count) int { return c.Packets }},
		{"loss", netlab.Path{Delay: 100 * time.Microsecond, Loss: 0.05}, few, func(c netlab.Count) int { return c.Lost }},
		{"a narrow wire", netlab.Path{Delay: time.Millisecond, Bandwidth: 20e6, Queue: 16 << 10}, few, func(c netlab.Count) int { return c.Lost }},
		{"all of it", netlab.Path{Delay: time.Millisecond, Loss: 0.03, Bandwidth: 50e6}, few, func(c netlab.Count) int { return c.Lost }},
	} {
		if testing.Short() && c.what != "all of it" {
			continue
		}
		t.Run(c.what, func(t *testing.T) {
			did := 0
			h := hosts{seed: 1, path: c.path, after: func(n *netlab.Net) {
				var sum netlab.Count
				for a := range 4 {
					for b := range 4 {
						k := n.Count(a, b)
						sum.Packets += k.Packets
						sum.Lost += k.Lost
					}
				}
				did += c.did(sum)
				t.Logf("%+v", sum)
			}}
			cohorttest.Some(t, h, 4, func(s string) bool { return slices.Contains(c.parts, s) })
			if did == 0 {
				t.Error("no packet was affected")
			}
		})
	}
}
