package shm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

func init() {
	// Long messages and a collective, with buffers that the kernel does not copy on rank 0, on rank 1, or on both.
	programs["secret"] = func(c backend.Comm) error {
		const n = 1 << 20
		for whose := 1; whose < 4; whose++ {
			buf := make([]byte, n)
			if whose>>c.Rank()&1 != 0 {
				var err error
				if buf, err = need.SecretMemory(n); err != nil {
					return err
				}
			}
			want := bytes.Repeat([]byte("cohort%&"), n/8)
			if c.Rank() == 0 {
				copy(buf, want)
				if err := c.Send(nil, buf, 1, 1, backend.Standard); err != nil {
					return err
				}
			} else if _, err := c.Recv(nil, buf, 0, 1); err != nil || !bytes.Equal(buf, want) {
				return fmt.Errorf("buffers %b: the message has arrived: %v: %v", whose, bytes.Equal(buf, want), err)
			}
			for range 16 { // some would copy from process to process
				call := &backend.Call{Coll: backend.Allgather, Root: -1, Type: float64s, Count: n / 8, Send: buf, Recv: make([]byte, 2*n)}
				plan, err := c.(backend.Collectives).Collective(nil, call)
				if call.Ended != nil {
					call.Ended()
				}
				if plan != backend.PlanSchedule || err != nil {
					return fmt.Errorf("buffers %b: Allgather gives plan %v, %v, want messages", whose, plan, err)
				}
			}
			if err := barrier(c); err != nil {
				return fmt.Errorf("buffers %b: %w", whose, err)
			}
		}
		return nil
	}
}

func TestMemoryThatTheKernelDoesNotCopyLosesNoRank(t *testing.T) {
	if _, err := need.SecretMemory(1); errors.Is(err, errors.ErrUnsupported) {
		need.Missing(t, "needs memfd_secret")
	}
	launch(t, "secret", 2)
}
