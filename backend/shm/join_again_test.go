//go:build linux

package shm

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// holdings counts what this process has open: descriptors, goroutines and
// mappings of segments.
func holdings() (s string) {
	fds, _ := os.ReadDir("/proc/self/fd")
	maps, _ := os.ReadFile("/proc/self/maps")
	return fmt.Sprintf("%d descriptors, %d goroutines, %d segments", len(fds), runtime.NumGoroutine(), strings.Count(string(maps), "cohort-node"))
}

func init() {
	// A process joins jobs of one name one after the other, and each leaves
	// nothing behind.
	programs["again"] = func(c backend.Comm) error {
		rounds := 30
		if n, err := strconv.Atoi(os.Getenv("SHM_TEST_ROUNDS")); err == nil {
			rounds = n
		}
		cfg := Config{Rank: c.Rank(), Size: c.Size(), Job: os.Getenv("SHM_TEST_JOB") + "again"}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
		defer cancel()
		before := holdings()
		for i := range rounds {
			d, err := Open(ctx, cfg)
			if err != nil {
				return fmt.Errorf("joining for the %dth time: %w", i, err)
			}
			if i%2 == 0 {
				if _, err := d.(backend.Collectives).Collective(nil, &backend.Call{Coll: backend.Barrier}); err != nil {
					return err
				}
			}
			d.Close()
		}
		for after := ""; after != before; after = holdings() { // the mappings go when the collector sees that nobody can use them
			if ctx.Err() != nil {
				return fmt.Errorf("left behind: %s before, %s after", before, after)
			}
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		return nil
	}
}

func TestJobNameCanBeUsedAgain(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		launch(t, "again", n)
	}
}
