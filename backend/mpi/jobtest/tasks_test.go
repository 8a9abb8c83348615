//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/tasks"
)

// TestTasksEndOnAllRanksWhenOneLeaves checks that package tasks ends its loop on all ranks if the context of one ends
// in it. The others have none, and wait for that rank.
func TestTasksEndOnAllRanksWhenOneLeaves(t *testing.T) {
	joins("tasks", func(w *cohort.Comm) error {
		c, leave, want := w, func() {}, cohort.ErrPeerLost
		if fmt.Sprint(w.Rank()) == os.Getenv("LEAVES") {
			ctx, cancel := context.WithCancel(background)
			c, leave, want = w.WithContext(ctx), cancel, cohort.ErrCanceled
		}
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, err := range tasks.Map(background, c, slices.Values(make([]int, 1000)), func(_ context.Context, i int) (int, error) {
				leave()
				time.Sleep(10 * time.Millisecond) // on purpose: a task takes a while
				return i, nil
			}) {
				leave()
				last = err
			}
			ended <- last
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, want) {
				return fmt.Errorf("rank %d left the loop with %v, want %v", w.Rank(), err, want)
			}
		case <-time.After(time.Minute):
			return fmt.Errorf("rank %d is still in the loop", w.Rank())
		}
		return w.Close()
	})
	matrix(t, []string{"1", "0", "2"}, func(t *testing.T, library, leaves string) {
		start(t, library, 3, "tasks", "LEAVES="+leaves).must(t)
	})
}
