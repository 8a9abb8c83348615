package tensor

import (
	"errors"
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
)

// breakage is whether a communicator beneath is known to be broken.
type breakage struct{ known atomic.Bool }

// keeps reports whether the library beneath may still be using the memory of a call that failed, which began
// before the communicator was known to be broken: a call of MPI's that was given up goes on, and breaks its
// communicator. A call that begins later is refused.
func (b *breakage) keeps(c *cohort.Comm) bool {
	if c.Backend() != "mpi" {
		return false
	}
	_, _, err := c.Iprobe(cohort.AnySource, cohort.AnyTag)
	if err == nil || errors.Is(err, cohort.ErrInit) { // the thread may not call the library, nor could the call
		return false
	}
	b.known.Store(true)
	return true
}
