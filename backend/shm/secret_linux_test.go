package shm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
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
				must.OK(c.Send(nil, buf, 1, 1, backend.Standard))
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

	// In calls of one kind, plain memory, which then gives way to memory at the same place that the kernel does not copy.
	programs["secret place"] = func(c backend.Comm) error {
		const n = 1 << 20
		for i := range 20 {
			for what, get := range []func() ([]byte, error){plainMemory, func() ([]byte, error) { return need.SecretMemory(n) }} {
				buf, err := get()
				if err != nil {
					return err
				}
				call := &backend.Call{Coll: backend.Allgather, Root: -1, Type: float64s, Count: n / 8, Send: buf, Recv: make([]byte, 2*n)}
				_, err = c.(backend.Collectives).Collective(nil, call)
				if call.Ended != nil {
					call.Ended()
				}
				if err != nil {
					return fmt.Errorf("call %d with memory of kind %d: %w", i, what, err)
				}
				must.OK(unix.Munmap(buf))
			}
		}
		return nil
	}
}

func plainMemory() ([]byte, error) {
	return unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func TestMemoryThatTheKernelDoesNotCopyLosesNoRank(t *testing.T) {
	if _, err := need.SecretMemory(1); errors.Is(err, errors.ErrUnsupported) {
		need.Missing(t, "needs memfd_secret")
	}
	launch(t, "secret", 2)
	launch(t, "secret place", 2)
}
