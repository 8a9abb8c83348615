//go:build cgo && linux

package jobtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestManyReductionsWithGoOperationsAtOnce has more reductions with Go operations in progress than
// the backend has C functions to pass to the library.
func TestManyReductionsWithGoOperationsAtOnce(t *testing.T) {
	skipShort(t, "thousands of operations at a time")
	rank("many operations", manyOperations)
	for _, library := range inTurn(t) {
		start(t, library, 2, "many operations").must(t)
	}
}

func manyOperations(w *cohort.Comm) error {
	const n = 70
	type point struct{ X, Y float64 }
	comms, errs := make([]*cohort.Comm, n), make([]error, n)
	for i := range comms {
		var err error
		if comms[i], err = w.Dup(); err != nil {
			return err
		}
	}
	if w.Rank() == 0 { // comes when rank 1's calls wait for it
		must.Get(cohort.Recv(w, []int{0}, 1, 1))
	}
	var begun, ended sync.WaitGroup
	for i, c := range comms {
		begun.Add(1)
		ended.Go(func() {
			op := cohort.NewOp(true, func(in, inout []point) {
				for i := range in {
					inout[i].X += in[i].X
					inout[i].Y *= in[i].Y
				}
			})
			in, out := []point{{float64(i), 2}, {1, 3}}, make([]point, 2)
			begun.Done()
			err := cohort.Allreduce(c, in, out, op)
			if want := (point{float64(2 * i), 4}); err == nil && out[0] != want {
				err = fmt.Errorf("communicator %d: %v, want %v", i, out[0], want)
			}
			errs[i] = err
		})
	}
	begun.Wait()
	if w.Rank() == 1 {
		must.OK(cohort.Send(w, []int{1}, 0, 1))
	}
	ended.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for _, c := range comms {
		must.OK(c.Close())
	}
	return nil
}
