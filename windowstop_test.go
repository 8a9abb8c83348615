package cohort

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// late is a local backend. On rank 1, the first Probe after Share reports a timeout.
type late struct {
	backend.Comm
	shared atomic.Bool
}

func (c *late) Share(b *backend.Bound, size int, tell backend.Publish) (backend.Memory, error) {
	mem, err := c.Comm.(backend.Sharing).Share(b, size, tell)
	c.shared.Store(true)
	return mem, err
}

func (c *late) Available() (int64, string) { return -1, "" }

func (c *late) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	if c.Rank() == 1 && c.shared.Swap(false) {
		return backend.Status{}, false, fault(ErrTimeout, "the test's limit")
	}
	return c.Comm.Probe(b, source, tag, block)
}

// If a rank is interrupted while it touches the memory of a window, all ranks return the same
// error, and the communicator stays usable.
func TestInterruptedAllocationFailsOnAllRanks(t *testing.T) {
	errs := worlds(3, settings{}, func(bc backend.Comm) backend.Comm { return &late{Comm: bc} }, func(w *Comm) error {
		_, err := AllocateShared[int](w, 1)
		if wantErr("AllocateShared", err, ErrTimeout) != nil || !strings.Contains(err.Error(), "rank 1: timed out: the test's limit") {
			return errors.Join(errors.New("want ErrTimeout of rank 1"), err)
		}
		return w.Barrier()
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
