//go:build interleave

package mpi

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// A call ends beside the deadline of the rank that waits for it. Either that rank gets the end, with all that the call has
// written, or the goroutine that made the call keeps it. A rank without a deadline waits until the call has ended.
func TestInterleaveCallEndsAtDeadline(t *testing.T) {
	for name, deadline := range map[string]bool{"a deadline": true, "no deadline": false} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 4, Timeouts: 1}, func(x *interleave.Run) {
				h := newHandover()
				x.Name(&h.state, "state")
				var over word.Bool
				result, got := []byte{0}, []byte{0}
				kept, taken := false, false
				x.Go("maker", func() {
					word.Copy(result, []byte{7})
					kept = !h.end(true, nil)
				})
				x.Go("waiter", func() {
					if taken = h.await(over.Load, backend.Grace); taken {
						if word.Copy(got, result); !h.made || got[0] != 7 {
							x.Errorf("made %v, result %d", h.made, got[0])
						}
					} else if !over.Load() {
						x.Errorf("gave up before the deadline")
					}
				})
				if deadline {
					x.Go("clock", func() {
						over.Store(true)
						h.news.Unpark()
					})
				}
				x.Check(func() error {
					if kept == taken {
						return fmt.Errorf("the maker has the end: %v; the waiter has it: %v", kept, taken)
					}
					return nil
				})
			})
		})
	}
}
