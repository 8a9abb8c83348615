//go:build linux || darwin

package tcp

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

var float64s = &backend.Datatype{Kind: backend.Float64, Size: 8, Name: "float64", ID: uint32(backend.Float64)}

func init() {
	programs["allocs"] = func(c backend.Comm) error {
		runner := sched.New(c)
		return ranktest.AllocateNothing(c, func(b *backend.Bound, call *backend.Call) error { return runner.Run(b, call, true) })
	}
}

// With eight ranks progress asks the operating system first which links have something.
// Without heartbeats, no rank asks beside the calls, at its own pace, whether a silent one runs.
func TestBlockingCallsAllocateNothing(t *testing.T) {
	launch(t, "allocs", 2, "TCP_TEST_HEARTBEAT=-1s")
	launch(t, "allocs", 8, "TCP_TEST_HEARTBEAT=-1s")
}
