//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/leak"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// segments counts the mappings of segments, having collected the garbage: a mapping goes when nobody can use it.
func segments() int {
	runtime.GC()
	maps, _ := os.ReadFile("/proc/self/maps")
	return strings.Count(string(maps), "cohort-node")
}

func init() {
	// A process joins jobs of one name one after the other, and each leaves
	// nothing behind.
	programs["again"] = func(c backend.Comm) error {
		rounds := 30
		if n, err := strconv.Atoi(os.Getenv("SHM_TEST_ROUNDS")); err == nil {
			rounds = n
		}
		cfg := backend.Config{Rank: c.Rank(), Size: c.Size(), Job: os.Getenv("SHM_TEST_JOB") + "again"}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
		defer cancel()
		files, routines, mapped := leak.Files(), runtime.NumGoroutine(), segments()
		for i := range rounds {
			d, err := Open(ctx, cfg)
			if err != nil {
				return fmt.Errorf("joining for the %dth time: %w", i, err)
			}
			if i%2 == 0 {
				must.Get(d.(backend.Collectives).Collective(nil, &backend.Call{Coll: backend.Barrier}))
			}
			d.Close()
		}
		return errors.Join(leak.Above("descriptors", leak.Files, files), leak.Above("goroutines", runtime.NumGoroutine, routines), leak.Above("segments", segments, mapped))
	}
}

func TestJobNameCanBeUsedAgain(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		launch(t, "again", n)
	}
}
