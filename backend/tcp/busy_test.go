//go:build linux || darwin

package tcp

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
)

func init() {
	// All compute for longer than the heartbeat allows, on fewer processors than they are, and then use each other, again
	// and again.
	programs["busy"] = func(c backend.Comm) error {
		times, err := strconv.Atoi(os.Getenv("TCP_TEST_TIMES"))
		if err != nil {
			return err
		}
		each, err := time.ParseDuration(os.Getenv("TCP_TEST_EACH"))
		if err != nil {
			return err
		}
		x := 1.0
		for i := range times {
			for begun := time.Now(); time.Since(begun) < each; {
				for range 1 << 20 {
					x = math.Sin(x)
				}
			}
			if lost := c.(agree.Comm).Failed(); lost != nil && x < 2 {
				return fmt.Errorf("in round %d of %d %v are lost", i+1, times, lost)
			}
			if err := rounds(c, 10); err != nil {
				return fmt.Errorf("round %d of %d: %w", i+1, times, err)
			}
		}
		return nil
	}
}

// TestBusyRanksAreNotLost has ranks compute on fewer processors than they are: none is lost.
func TestBusyRanksAreNotLost(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: ranks that compute for seconds are not lost; make test-all runs it")
	}
	for _, env := range carriers[:2] {
		t.Run(env.name, func(t *testing.T) {
			launch(t, "busy", 5, slices.Concat(env.env, []string{"TCP_TEST_TIMES=1", "TCP_TEST_EACH=4s", "TCP_TEST_HEARTBEAT=2s", "GOMAXPROCS=1"})...)
		})
	}
}
