//go:build linux

package shm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func init() {
	// When a rank closes the communicator, receives and probes that wait for its messages end, by name and
	// as any source.
	programs["closes"] = func(c backend.Comm) error {
		for id := range uint32(4) {
			d, err := c.Derive(nil, []int{0, 1}, 20+id)
			if err != nil {
				return err
			}
			if c.Rank() == 1 {
				c.Recv(nil, nil, 0, 1)
				d.Close()
				continue
			}
			source := []int{1, backend.AnySource}[id%2]
			r := &backend.Request{}
			r.Begin()
			if id < 2 {
				d.Irecv(r, make([]byte, 8), source, 1)
			}
			must.OK(c.Send(nil, nil, 1, 1, backend.Standard))
			if id < 2 {
				must.OK(d.Await(nil, r))
				err = r.Err
			} else {
				_, _, err = d.Probe(nil, source, 1, true)
			}
			if !errors.Is(err, backend.ErrPeerLost) {
				return fmt.Errorf("waiting for a message of a rank that closed: %v", err)
			}
			d.Close()
		}
		return nil
	}
}

func TestClosingRankEndsReceivesFromIt(t *testing.T) { launch(t, "closes", 2) }
