//go:build cgo && linux

package jobtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// add is an operation whose nonblocking collectives are made of messages: their later rounds need calls of this rank.
var add = cohort.NewOp(true, func(in, inout []float64) {
	for i := range in {
		inout[i] += in[i]
	}
})

// progressSettings returns the settings that decide how calls are made. With -short it leaves out those in which ranks agree
// on calls, as they do in TestRandomProgramsGiveRightResults.
func progressSettings() []string {
	if testing.Short() {
		return []string{"COHORT_CHECK=0"}
	}
	return []string{"COHORT_CHECK=0", "COHORT_CHECK=1", "COHORT_DETERMINISTIC=1"}
}

// TestRequestAdvancesBehindBlockedCall checks that a nonblocking collective that is made of messages advances while the
// only goroutine that calls cohort is blocked in the library since before it began.
func TestRequestAdvancesBehindBlockedCall(t *testing.T) {
	rank("behind", func(w *cohort.Comm) error {
		a, b, one := make([]float64, 1<<18), make([]float64, 1<<18), make([]float64, 1)
		if w.Rank() != 0 {
			err := errors.Join(reached("begun", 1), waited(cohort.Iallreduce(w, a, b, add)))
			return errors.Join(err, cohort.Send(w, one, 0, 5))
		}
		received := make(chan error)
		go func() {
			_, err := cohort.Recv(w, one, 1, 5)
			received <- err
		}()
		inside.Wait("cohort.Recv[...]")
		q := must.Get(cohort.Iallreduce(w, a, b, add))
		must.OK(sign("begun"))
		if err := <-received; err != nil {
			return err
		}
		return second(q.Wait())
	})
	for _, name := range inTurn(t) {
		for _, setting := range progressSettings() {
			t.Run(name+"/"+setting, func(t *testing.T) { start(t, name, 2, "behind", setting, signsVariable+"="+t.TempDir()).must(t) })
		}
	}
}

// TestRequestAdvancesDuringCollectiveOfOneThread checks that at the thread level funneled a nonblocking collective that
// is made of messages advances while its rank is in a call that waits for all ranks, and the other ranks come to that
// call only when they have waited for the request. In the other order it works too.
func TestRequestAdvancesDuringCollectiveOfOneThread(t *testing.T) {
	rank("funneled", func(w *cohort.Comm) error {
		cart := must.Get(w.CartCreate([]int{2}, []bool{true}, false))
		d := must.Get(w.Dup())
		win := must.Get(cohort.AllocateShared[int](d, 4))
		calls := []struct {
			name string
			call func() error
		}{
			{"Barrier", d.Barrier},
			{"Allreduce", func() error { return second(cohort.AllreduceOne(d, 1, cohort.Sum)) }},
			{"Bcast", func() error { return cohort.Bcast(d, make([]int, 10_000), 0) }},
			{"Allreduce with a function", func() error { return cohort.Allreduce(d, make([]float64, 4), make([]float64, 4), add) }},
			{"Dup", func() error {
				e, err := d.Dup()
				return errors.Join(err, e.Close())
			}},
			{"Split", func() error {
				e, err := d.Split(0, 0)
				return errors.Join(err, e.Close())
			}},
			{"NeighborAllgather", func() error { return cohort.NeighborAllgather(cart, []int{1}, make([]int, 2)) }},
			{"Fence", win.Fence},
			{"AllocateShared and Close", func() error {
				win, err := cohort.AllocateShared[int](d, 4)
				if err != nil {
					return err
				}
				return win.Close()
			}},
			{"Close of the window", win.Close},
		}
		a, b := make([]float64, 1<<18), make([]float64, 1<<18)
		for _, c := range calls {
			for first := range 2 { // the rank that comes to the call before it waits
				q, err := cohort.Iallreduce(w, a, b, add)
				if err != nil {
					return err
				}
				if w.Rank() != first {
					_, err = q.Wait()
				}
				if c.name != "Close of the window" || first == 0 {
					err = errors.Join(err, c.call())
				}
				if _, err2 := q.Wait(); err != nil || err2 != nil {
					return fmt.Errorf("%s: %w", c.name, errors.Join(err, err2))
				}
			}
		}
		return nil
	})
	for _, name := range inTurn(t) {
		for _, setting := range progressSettings() {
			t.Run(name+"/"+setting, func(t *testing.T) { start(t, name, 2, "funneled", setting, "COHORT_MPI_THREAD=funneled").must(t) })
		}
	}
}
