//go:build linux

package cohort_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/shm"
)

// counted is a communicator of the backend shm that counts the messages it sends. It has no collectives
// (backend.Collectives), so all collectives consist of messages, too. All other methods are those of the
// embedded communicator.
type counted struct {
	backend.Comm
	backend.Sharing
	backend.Recovery
	sent *atomic.Int64 // by all communicators of this rank
}

func newCounted(c backend.Comm, sent *atomic.Int64) backend.Comm {
	return counted{c, c.(backend.Sharing), c.(backend.Recovery), sent}
}

// Caps describes the backend to users.
func (c counted) Caps() backend.Caps {
	caps := c.Comm.Caps()
	caps.Backend, caps.NativeColl = "counted", false
	return caps
}

// Diagnostics reports the messages sent so far.
func (c counted) Diagnostics() []string {
	return []string{fmt.Sprintf("%d messages sent", c.sent.Load())}
}

func (c counted) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	c.sent.Add(1)
	return c.Comm.Send(b, buf, dest, tag, mode)
}

func (c counted) Isend(r *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	c.sent.Add(1)
	c.Comm.Isend(r, buf, dest, tag, mode)
}

// Derive and Shrink return counted communicators.
func (c counted) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	d, err := c.Comm.Derive(b, members, id)
	if err != nil {
		return nil, err
	}
	return newCounted(d, c.sent), nil
}

func (c counted) Shrink(b *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	d, id, err := c.Recovery.Shrink(b, ids)
	if err != nil {
		return nil, 0, err
	}
	return newCounted(d, c.sent), id, nil
}

// openCounted is a backend.Opener: it joins the job.
func openCounted(ctx context.Context, cfg backend.Config) (backend.Comm, error) {
	c, err := shm.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return newCounted(c, new(atomic.Int64)), nil
}

func init() { cohort.Register("counted", openCounted) }

// A backend of another module. Its conformance test is one call:
//
//	cohorttest.Test(t, cohorttest.Processes{Backend: "counted"})
func ExampleRegister() {
	world, err := cohort.Init(context.Background(), &cohort.Config{Backend: "counted", Size: 1, Job: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer world.Close()
	for range 3 {
		if _, err := cohort.Sendrecv(world, []int{7}, 0, 1, make([]int, 1), 0, 1); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(world.Backend(), world.Diagnostics())
	// Output: counted [3 messages sent]
}
