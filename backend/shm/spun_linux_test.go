package shm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func init() {
	// The last rank computes, and has the only processor whenever the waiting ranks yield it. They still
	// meet their deadlines.
	programs["spun"] = func(c backend.Comm) error {
		const short, most, tries = 30 * time.Millisecond, 100 * time.Millisecond, 50 // one is enough: other programs may delay some
		last := c.Size() - 1
		if c.Rank() == last {
			for begun := time.Now(); time.Since(begun) < 10*time.Second; {
				if _, ok, err := c.Probe(nil, 0, 2, false); ok || err != nil {
					break
				}
			}
			_, err := c.Recv(nil, nil, 0, 2)
			return errors.Join(err, sum(c, 1))
		}
		best := time.Hour
		for range tries {
			begun := time.Now()
			_, err := c.Recv(&backend.Bound{Timeout: short}, make([]byte, 8), last, 1)
			if !errors.Is(err, backend.ErrTimeout) {
				return fmt.Errorf("got %v, want ErrTimeout", err)
			}
			if best = min(best, time.Since(begun)-short); best < most {
				break
			}
		}
		if c.Rank() == 0 {
			must.OK(c.Send(nil, nil, last, 2, backend.Standard))
		}
		if best >= most {
			return fmt.Errorf("the best of %d deadlines was kept %v late", tries, best)
		}
		return sum(c, 1)
	}
}

// TestDeadlineHoldsOnBusyProcessor has ranks wait on a processor on which another one computes:
// each time they yield it they get it back only after milliseconds.
func TestDeadlineHoldsOnBusyProcessor(t *testing.T) {
	onOneProcessor(t)
	launch(t, "spun", 3)
}
