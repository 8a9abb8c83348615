package shmem

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// noTag is a tag that no message has.
const noTag = backend.AnyTag + 1

// Until returns a function that says why an operation on a communicator that begins now has to end:
// its time is up, or the communicator is over. The function returns nil as long as it may go on.
func Until(b *backend.Bound, c backend.Comm) func() error {
	begun := time.Now()
	return func() error {
		if err := b.Err(begun); err != nil {
			return err
		}
		if err := c.Broken(); err != nil {
			return err
		}
		// The loss of a rank ends all that is begun, and every backend says so here.
		_, _, err := c.Probe(nil, backend.AnySource, noTag, false)
		return err
	}
}
