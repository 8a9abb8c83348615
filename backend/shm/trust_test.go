//go:build linux

package shm

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func init() {
	// An RTS of more bytes than the address space holds ends the job.
	programs["huge"] = func(c backend.Comm) error {
		e := c.(*comm).e
		if c.Rank() == 1 {
			e.mu.Lock()
			cell, room, _ := e.out[0].room(rtsSize)
			putRTS(room, 0, 1, 0)
			e.out[0].publish(cell, kindRTS, 0, 1, min(1<<50, math.MaxInt))
			e.mu.Unlock()
			e.ring(0)
			_, err := c.Recv(nil, nil, 0, 1)
			return isCorrupt(err)
		}
		st, _, err := c.Probe(nil, 1, 1, true)
		if err == nil {
			return fmt.Errorf("probed a message of %d bytes", st.Bytes)
		}
		return isCorrupt(err)
	}

	// Error codes that a peer writes may be none at all: the error made of them
	// has a sentinel all the same.
	programs["codes"] = func(c backend.Comm) error {
		e := c.(*comm).e
		d, err := c.Derive([]int{0, 1}, 9)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			e.mu.Lock()
			cell, _, _ := e.out[0].room(0)
			e.out[0].publish(cell, kindBreak, 9, 0, 0)
			e.mu.Unlock()
			e.ring(0)
			c.Recv(nil, nil, 0, 1)
			e.ctl.state.Store(jobFailed) // of a failure that has no code
			e.ring(0)
			return nil
		}
		_, err = d.Recv(nil, nil, 1, 1)
		if !errors.Is(err, backend.ErrBroken) || !errors.Is(err, backend.ErrInternal) {
			return fmt.Errorf("broken without a code: %v", err)
		}
		if err := c.Send(nil, nil, 1, 1, backend.Standard); err != nil {
			return err
		}
		if _, err = c.Recv(nil, nil, 1, 1); !errors.Is(err, backend.ErrInternal) {
			return fmt.Errorf("failed without a code: %v", err)
		}
		return nil
	}
}

func TestHugeRTSEndsJob(t *testing.T) { launch(t, "huge", 2) }

func TestEveryCodeHasSentinel(t *testing.T) {
	if err := run(t, "codes", 2)[0]; err != nil {
		t.Error(err)
	}
}
