//go:build interleave

package backend

import (
	"testing"

	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// A goroutine that finds a request ready reads the whole result, in each of the two ways in which a request completes.
func TestInterleaveRequestIsReadyWithItsResult(t *testing.T) {
	for name, finish := range map[string]func(*Request, Status, error){"Finish": (*Request).Finish, "FinishAtOnce": (*Request).FinishAtOnce} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
				r := new(Request)
				x.Name(&r.state, "state")
				x.Go("backend", func() {
					r.Begin()
					finish(r, Status{Source: 1, Bytes: 2}, ErrTruncate)
				})
				x.Go("reader", func() {
					for !r.Ready() {
						word.Yield()
					}
					word.Reading(r)
					if st := r.Status; st.Source != 1 || st.Bytes != 2 || r.Err != ErrTruncate {
						x.Errorf("%v, %v", st, r.Err)
					}
				})
			})
		})
	}
}
