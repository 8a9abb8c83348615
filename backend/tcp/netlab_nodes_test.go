//go:build linux

package tcp_test

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/netlab"
)

// nodes launches ranks on hosts with several of them each, which are nodes: their ranks share memory.
type nodes struct {
	hosts
	of []int // the host of each rank
}

// inBlocks has so many consecutive ranks on each of some hosts.
func inBlocks(hosts, per int) (n nodes) {
	for r := range hosts * per {
		n.of = append(n.of, r/per)
	}
	return n
}

func (p nodes) Launch(t testing.TB, job *cohorttest.Job) error {
	t.Helper()
	// The ranks meet at the host that meeting has for one rank a host.
	n, err := netlab.New(netlab.Config{Hosts: job.Ranks + 1})
	if err != nil {
		return err
	}
	defer n.Close()
	n.Set(-1, -1, netlab.Path{})
	env, end, err := meeting(t, n, job.Ranks)
	if err != nil {
		return err
	}
	defer end()
	start := func(rank int, cmd *exec.Cmd) error { return n.Start(p.of[rank], cmd) }
	return cohorttest.Processes{Backend: "tcp", Env: env, Start: start}.Launch(t, job)
}

// TestNodes is the conformance suite on 4 ranks, of which two each share memory.
func TestNodes(t *testing.T) {
	if needHosts(t) {
		cohorttest.Some(t, inBlocks(2, 2), 4, func(string) bool { return true })
	}
}

// TestNodesBits checks that the results are those of ranks that are goroutines, wherever the ranks are.
func TestNodesBits(t *testing.T) {
	if !needHosts(t) {
		return
	}
	for _, p := range []nodes{inBlocks(2, 2), inBlocks(2, 3), {of: []int{0, 1, 0, 1}}, {of: []int{0, 1, 1, 0, 2, 1, 1}}, inBlocks(2, 4)} {
		t.Run(fmt.Sprint(p.of), func(t *testing.T) {
			want := cohorttest.Bits(t, cohorttest.Goroutines{}, len(p.of))
			if got := cohorttest.Bits(t, p, len(p.of)); got != want {
				t.Errorf("tcp gives %s, local %s", got, want)
			}
		})
	}
}
