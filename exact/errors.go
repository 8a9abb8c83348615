package exact

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// disagree returns the error of a call in which the lengths of a rank differ, or those of two ranks. It names the lowest
// rank with different lengths, or else rank 0 and the lowest rank that has another length.
//
// Collective, after all ranks have learned that there is such a rank.
func disagree(c *cohort.Comm, op string, what [2]string, lengths [2]int) error {
	all := make([][2]int64, c.Size())
	if err := cohort.Allgather(c, [][2]int64{{int64(lengths[0]), int64(lengths[1])}}, all); err != nil {
		return err
	}
	fail := func(sentinel error, format string, args ...any) error {
		return &cohort.OpError{Op: op, Comm: c.Name(), Rank: c.Rank(), Peer: cohort.Undefined, Tag: cohort.Undefined, Err: backend.Faultf(sentinel, format, args...)}
	}
	if lengths[0] != lengths[1] {
		return fail(cohort.ErrCount, "%s has %d elements, %s %d; want the same", what[0], lengths[0], what[1], lengths[1])
	}
	for r, n := range all {
		if n[0] != n[1] {
			return fail(cohort.ErrMismatch, "on rank %d %s has %d elements, %s %d", r, what[0], n[0], what[1], n[1])
		}
	}
	for r, n := range all {
		if n[0] != all[0][0] {
			return fail(cohort.ErrMismatch, "rank 0 called %s with %d elements, rank %d with %d", op, all[0][0], r, n[0])
		}
	}
	return nil
}
