//go:build cgo && linux && !race

package jobtest

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestCallsMakeNoAllocations checks that blocking calls, and persistent ones once they are made, do
// not allocate.
func TestCallsMakeNoAllocations(t *testing.T) {
	rank("allocations", allocations)
	for _, library := range inTurn(t) {
		checks := []string{"0", "1"}
		if testing.Short() {
			checks = checks[:1]
		}
		for _, check := range checks {
			start(t, library, 2, "allocations", "COHORT_CHECK="+check).must(t)
		}
	}
}

func allocations(w *cohort.Comm) error {
	type point struct{ X, Y float64 }
	op := cohort.NewOp(true, func(in, inout []point) {
		for i := range in {
			inout[i].X += in[i].X
		}
	})
	other := 1 - w.Rank()
	for _, n := range []int{1, 100, 10_000} {
		a, b := make([]float64, 2*n), make([]float64, 2*n)
		pa, pb := make([]point, n), make([]point, n)
		reduce := must.Get(cohort.AllreduceInit(w, a[:n], b[:n], cohort.Sum))
		bcast, err := cohort.BcastInit(w, a, 0)
		if err != nil {
			return err
		}
		again := func(p *cohort.Persistent) error { return second(p.Wait()) }
		for _, c := range []struct {
			name string
			call func() error
		}{
			{"Send and Recv", func() error {
				if w.Rank() == 0 {
					err := cohort.Send(w, a, other, 1)
					_, err2 := cohort.Recv(w, a, other, 1)
					return errors.Join(err, err2)
				}
				_, err := cohort.Recv(w, a, other, 1)
				return errors.Join(err, cohort.Send(w, a, other, 1))
			}},
			{"Barrier", w.Barrier},
			{"Bcast", func() error { return cohort.Bcast(w, a, 1) }},
			{"Reduce", func() error { return cohort.Reduce(w, a, b, cohort.Sum, 0) }},
			{"Allreduce", func() error { return cohort.Allreduce(w, a, b, cohort.Sum) }},
			{"Allreduce by a function", func() error { return cohort.Allreduce(w, pa, pb, op) }},
			{"Allgather", func() error { return cohort.Allgather(w, a[:n], b) }},
			{"Alltoall", func() error { return cohort.Alltoall(w, a, b) }},
			{"Scan", func() error { return cohort.Scan(w, a, b, cohort.Sum) }},
			{"persistent Allreduce", func() error { return errors.Join(reduce.Start(), again(reduce)) }},
			{"persistent Bcast", func() error { return errors.Join(bcast.Start(), again(bcast)) }},
		} {
			for range 20 { // allocations that a first call makes
				err = errors.Join(err, c.call())
			}
			// The best of some rounds: the rest of the process may allocate meanwhile, more so on a slow
			// machine.
			got, most := math.Inf(1), math.Inf(1) // on this rank, on any
			for range 5 {
				if err != nil || most == 0 {
					break
				}
				say("%s of %d", c.name, n) // resets the watchdog
				got = min(got, testing.AllocsPerRun(20, func() { err = errors.Join(err, c.call()) }))
				all, e := cohort.AllreduceOne(w, got, cohort.Max)
				most, err = all, errors.Join(err, e)
			}
			if err == nil && got != 0 {
				err = fmt.Errorf("%s of %d numbers: %v allocations", c.name, n, got)
			}
			if err != nil {
				return err
			}
		}
		must.OK(errors.Join(reduce.Close(), bcast.Close()))
	}
	return nil
}
