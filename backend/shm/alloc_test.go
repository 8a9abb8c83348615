//go:build linux

package shm

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

func init() {
	programs["allocs"] = func(c backend.Comm) error {
		return ranktest.AllocateNothing(c, func(b *backend.Bound, call *backend.Call) error {
			plan, err := c.(backend.Collectives).Collective(b, call)
			if err == nil && plan != backend.PlanDone && call.Count <= 1000/8 { // longer ones may go over messages
				err = fmt.Errorf("%v was not done", call.Coll)
			}
			return err
		})
	}
}

// With eight ranks progress asks the operating system first which links have something.
// Without heartbeats, no rank asks beside the calls, at its own pace, whether a silent one runs.
func TestBlockingCallsAllocateNothing(t *testing.T) {
	t.Setenv("SHM_TEST_HEARTBEAT", "-1s")
	launch(t, "allocs", 2)
	launch(t, "allocs", 8)
}
