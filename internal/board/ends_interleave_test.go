//go:build interleave && linux

package board

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
)

// ends are what ends a communicator beside its calls, on rank 0 or for both, with the errors that tell it.
var ends = map[string]struct {
	end   func(j *job, all []*party)
	tells []error
}{
	"deadline": {func(j *job, _ []*party) { j.late.Store(true) }, []error{backend.ErrTimeout}},
	"revoked": {func(_ *job, all []*party) { all[0].Break(&backend.Fault{Sentinel: backend.ErrBroken, Text: "revoked"}) },
		[]error{backend.ErrBroken}},
	"closed": {func(_ *job, all []*party) { _ = all[0].close() }, []error{backend.ErrClosed, backend.ErrPeerLost}},
	"lost": {func(j *job, all []*party) {
		j.boards[0].Mark(1, loss)
		all[0].BreakHere(loss)
	}, []error{backend.ErrPeerLost}},
}

// Two ranks make two calls, which may differ, while one or two things end the communicator. Each rank gets the error of
// one of these, or the mismatch, which names both calls and is the same on both. A result without an error is right.
// After an error on one rank, no rank's next call succeeds, and calls that differ succeed on none.
func TestInterleaveEndsOfCollective(t *testing.T) {
	for _, c := range []struct {
		differs bool
		ends    string
	}{
		{true, "deadline"}, {true, "revoked"}, {true, "closed"}, {true, "lost"},
		{false, "revoked deadline"}, {false, "closed lost"}, {false, "closed revoked"}, {false, "lost deadline"},
	} {
		t.Run(fmt.Sprintf("differs %v, %s", c.differs, c.ends), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
				var errs [2][2]error // by rank and call
				var allowed []error
				if c.differs {
					allowed = append(allowed, backend.ErrMismatch)
				}
				for _, name := range strings.Fields(c.ends) {
					allowed = append(allowed, ends[name].tells...)
					j.x.Go(name, func() { ends[name].end(j, all) })
				}
				for r, p := range all {
					j.x.Go(fmt.Sprint("rank ", r), func() {
						colls := [2]backend.Coll{backend.Allreduce, backend.Allreduce}
						if c.differs && r == 1 {
							colls[0] = backend.Barrier
						}
						for k, coll := range colls {
							if errs[r][k] = p.Over(); errs[r][k] == nil { // which the engine asks before a call
								errs[r][k] = p.run(bounded, coll, -1, 1, k)
							}
							p.fails(coll.String(), errs[r][k], allowed...)
						}
					})
				}
				j.x.Check(func() error {
					mismatch := ""
					for r := range errs {
						first, second := errs[r][0], errs[r][1]
						switch text := fmt.Sprint(first); {
						case first == nil && c.differs, (first != nil || errs[1-r][0] != nil) && second == nil:
							return fmt.Errorf("the calls of the ranks end with %v", errs)
						case !errors.Is(first, backend.ErrMismatch):
						case !strings.Contains(text, "Barrier") || !strings.Contains(text, "Allreduce") || mismatch != "" && text != mismatch:
							return fmt.Errorf("the ranks end with %v", errs)
						default:
							mismatch = text
						}
					}
					return nil
				})
			})
		})
	}
}
