package shmem

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// noTag is a tag that no message has.
const noTag = backend.AnyTag + 1

// Until returns a function that returns why an operation that begins now has to end: its time is
// up, or the communicator has ended. It returns nil while the operation may go on.
func Until(b *backend.Bound, c backend.Comm) func() error {
	begun := time.Now()
	return func() error {
		if err := b.Err(begun); err != nil {
			return err
		}
		if err := c.Broken(); err != nil {
			return err
		}
		// The loss of a rank ends every operation, and every backend reports it here.
		_, _, err := c.Probe(nil, backend.AnySource, noTag, false)
		return err
	}
}
