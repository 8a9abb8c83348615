//go:build interleave

package gate

import (
	"testing"

	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Memory that is freed behind a gate is touched by nobody who is not inside.
func TestInterleaveGate(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		var g Gate
		memory := make([]byte, 1)
		x.Name(&g.count, "gate")
		for _, name := range []string{"user", "other user"} {
			x.Go(name, func() {
				for range 2 {
					if g.Enter() {
						interleave.Point("inside")
						word.Reads(memory)
						g.Leave()
					}
				}
			})
		}
		x.Go("closer", func() {
			if !g.Shut() || g.Shut() || !g.IsShut() || !g.AwaitEmpty(0) || g.Enter() {
				x.Errorf("the gate is not shut")
			}
			word.Freed(memory)
			if !g.Empty() {
				x.Errorf("a caller that Enter refuses is inside")
			}
		})
	})
}
