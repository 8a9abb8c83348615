package topo_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

// TestHereDescribesThisMachine describes the machine of the test.
func TestHereDescribesThisMachine(t *testing.T) {
	n, err := topo.Here()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(n)
	check(t, n)
	// The Go runtime counts the processors of the mask when the program starts. The mask already
	// includes the control group's set.
	if len(n.CPUs) != runtime.NumCPU() {
		t.Errorf("%d processors, the runtime has %d", len(n.CPUs), runtime.NumCPU())
	}
	if name, err := os.Hostname(); err == nil && n.Host != name {
		t.Errorf("host %q, want %q", n.Host, name)
	}
	again, err := topo.Here()
	if err != nil || again.CPUs.String() != n.CPUs.String() || cores(again) != cores(n) {
		t.Errorf("a second time: %v, %v", again, err)
	}
	for ranks := range 5 {
		for _, policy := range []topo.Policy{topo.Cores, topo.NUMA} {
			p, err := n.Plan(ranks+1, 2, policy)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(n, p); err != nil {
				t.Errorf("%d ranks, %v: %s: %v", ranks+1, policy, sets(p), err)
			}
		}
	}
	if j := topo.ThisJob(); j.String() == "" {
		t.Error("nothing to say of the job")
	}
}
